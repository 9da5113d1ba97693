//! Encodes lists from cached item encodings: each item is encoded once per encoding, kept with the cached document and
//! copied into every list, compressed or not.

use std::sync::{Arc, OnceLock};

use api::{Value, convert, json_encoder, protobuf, schema::FieldType, status::Status};
use apiserver_core::{
    document::{self, TypeMetaPrefix},
    request::ResourceRequest,
};
use bytes::{BufMut, Bytes, BytesMut};
use registry::ListPage;
use store::CachedItem;

use crate::gzip::{self, GzipPiece, GzipStream};

/// Cached encodings of one document as a list item.
#[derive(Default)]
struct EncodedItem {
    /// JSON item with a leading comma, compressed.
    json: OnceLock<GzipPiece>,
    /// Protobuf item.
    protobuf: OnceLock<Bytes>,
    /// Protobuf item, compressed.
    protobuf_compressed: OnceLock<GzipPiece>,
}

/// An encoded list.
pub struct EncodedList {
    /// The bytes to send.
    pub body: Bytes,
    /// Whether they are gzip.
    pub compressed: bool,
}

/// Encodes a list as JSON.
pub fn encode_json_list(
    target: &ResourceRequest,
    metadata: &Value,
    list: &ListPage,
    compress: bool,
) -> Result<EncodedList, Status> {
    let (kind, version) = (target.resource.kind, target.resource.api_version());
    let head = format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[");
    let size: usize = head.len() + list.items.iter().map(|item| item.record.value.len() + 32).sum::<usize>();
    let items = ItemEncoder { target, tail: TypeMetaPrefix::for_resource(&target.resource) };
    if compress && size >= gzip::MIN_COMPRESSED_SIZE {
        let mut stream = GzipStream::with_capacity(size / 4);
        stream.push_piece(&GzipPiece::compress(head.as_bytes()));
        if let Some((first, rest)) = list.items.split_first() {
            stream.push_piece(&GzipPiece::compress(&items.encode_json(first)?[1..]));
            for item in rest {
                items.with_json_piece(item, |piece| stream.push_piece(piece))?;
            }
        }
        stream.push_piece(&GzipPiece::compress(b"]}\n"));
        return Ok(EncodedList { body: stream.finish(), compressed: true });
    }
    let mut out = BytesMut::with_capacity(size + 16);
    out.put_slice(head.as_bytes());
    for (at, item) in list.items.iter().enumerate() {
        items.append_json(&mut out, item, at > 0)?;
    }
    out.put_slice(b"]}\n");
    Ok(EncodedList { body: out.freeze(), compressed: false })
}

/// Encodes a list as protobuf.
pub fn encode_protobuf_list(
    target: &ResourceRequest,
    metadata: &Value,
    list: &ListPage,
    compress: bool,
) -> Result<EncodedList, Status> {
    let items = ItemEncoder { target, tail: TypeMetaPrefix::for_resource(&target.resource) };
    let written: Vec<Bytes> = list.items.iter().map(|item| items.encode_protobuf(item)).collect::<Result<_, _>>()?;
    let length = written.iter().map(Bytes::len).sum();
    let (head, tail) = protobuf::list_envelope(&target.resource, metadata, length);
    let size = head.len() + length + tail.len();
    if compress && size >= gzip::MIN_COMPRESSED_SIZE {
        let mut stream = GzipStream::with_capacity(size / 4);
        stream.push_piece(&GzipPiece::compress(&head));
        for (item, written) in list.items.iter().zip(&written) {
            items.with_protobuf_piece(item, written, |piece| stream.push_piece(piece));
        }
        stream.push_piece(&GzipPiece::compress(&tail));
        return Ok(EncodedList { body: stream.finish(), compressed: true });
    }
    let mut out = BytesMut::with_capacity(size);
    out.put_slice(&head);
    written.iter().for_each(|item| out.put_slice(item));
    out.put_slice(&tail);
    Ok(EncodedList { body: out.freeze(), compressed: false })
}

/// Encodes the items of one resource.
struct ItemEncoder<'a> {
    target: &'a ResourceRequest,
    tail: TypeMetaPrefix,
}

impl ItemEncoder<'_> {
    /// The cached encodings, if the document is stored in the requested version.
    fn cached_encodings(&self, item: &CachedItem) -> Option<Arc<EncodedItem>> {
        self.tail.matches_document(&item.record.value).then(|| item.forms()).flatten()
    }

    fn decode_item(&self, item: &CachedItem) -> Result<Value, Status> {
        let object = document::decode_record(&item.record).map_err(Status::internal_error)?;
        Ok(convert::convert_to(&self.target.resource, object))
    }

    fn item_type(&self) -> FieldType {
        FieldType::Struct(self.target.resource.ty)
    }

    fn append_json(&self, out: &mut BytesMut, item: &CachedItem, comma: bool) -> Result<(), Status> {
        if comma {
            out.put_u8(b',');
        }
        if self.tail.matches_document(&item.record.value) {
            self.tail.append_item(out, &item.record.value, item.record.revision);
        } else {
            out.put_slice(&json_encoder::encode_typed(&self.item_type(), &without_type_meta(self.decode_item(item)?)));
        }
        Ok(())
    }

    /// A JSON item with a leading comma.
    fn encode_json(&self, item: &CachedItem) -> Result<BytesMut, Status> {
        let mut out = BytesMut::with_capacity(item.record.value.len() + 48);
        self.append_json(&mut out, item, true)?;
        Ok(out)
    }

    fn with_json_piece(&self, item: &Arc<CachedItem>, then: impl FnOnce(&GzipPiece)) -> Result<(), Status> {
        match self.cached_encodings(item) {
            Some(forms) => match forms.json.get() {
                Some(piece) => then(piece),
                None => {
                    let piece = GzipPiece::compress(&self.encode_json(item)?);
                    then(forms.json.get_or_init(|| piece));
                }
            },
            None => then(&GzipPiece::compress(&self.encode_json(item)?)),
        }
        Ok(())
    }

    fn encode_protobuf(&self, item: &CachedItem) -> Result<Bytes, Status> {
        let write = || Ok(Bytes::from(protobuf::encode_list_item(&self.target.resource, &self.decode_item(item)?)));
        let Some(forms) = self.cached_encodings(item) else { return write() };
        match forms.protobuf.get() {
            Some(written) => Ok(written.clone()),
            None => {
                let written = write()?;
                Ok(forms.protobuf.get_or_init(|| written).clone())
            }
        }
    }

    fn with_protobuf_piece(&self, item: &CachedItem, written: &Bytes, then: impl FnOnce(&GzipPiece)) {
        match self.cached_encodings(item) {
            Some(forms) => then(forms.protobuf_compressed.get_or_init(|| GzipPiece::compress(written))),
            None => then(&GzipPiece::compress(written)),
        }
    }
}

/// Removes `kind` and `apiVersion`, which the list has.
pub fn without_type_meta(mut item: Value) -> Value {
    api::meta::object_mut(&mut item).retain(|name, _| name != "kind" && name != "apiVersion");
    item
}
