//! The node port allocator: a bitmap in the `RangeAllocation` object under `/registry/ranges/servicenodeports`, in
//! upstream's format.

use std::ops::RangeInclusive;

use api::{Value, meta, status::Status};
use apiserver_core::document;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;
use store::{Precondition, WriteRequest};

use crate::Registry;

const KEY: &str = "/registry/ranges/servicenodeports";
/// Maximum number of attempts on conflicts with other servers.
const RETRIES: usize = 16;

/// A failed port allocation.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No value is free.
    #[error("range is full")]
    Full,
    /// The requested value is allocated.
    #[error("provided port is already allocated")]
    Taken,
    /// The requested port is not in the range.
    #[error("provided port is not in the valid range. The range of valid ports is {0}-{1}")]
    OutOfRange(u16, u16),
    /// The allocation could not be stored.
    #[error("{}", .0.message)]
    Failed(Status),
}

/// A requested port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRequest {
    /// This number, which may not be a valid port.
    Port(i64),
    /// Any free port.
    Any,
}

/// Allocates node ports of a range.
#[derive(Debug)]
pub struct NodePortAllocator {
    range: RangeInclusive<u16>,
    /// Serializes changes in this process; changes of other servers are write conflicts.
    changing: tokio::sync::Mutex<()>,
}

/// The allocated ports as a bitmap of offsets.
#[derive(Clone, Debug, Default)]
struct PortBitmap {
    bits: Vec<bool>,
}

impl NodePortAllocator {
    /// Creates the allocator of a range.
    pub fn new(range: RangeInclusive<u16>) -> Self {
        Self { range, changing: tokio::sync::Mutex::default() }
    }

    /// Allocates all requested ports or none; returns them in the order of the requests. The error has the index of
    /// the failed request.
    pub async fn allocate_ports(
        &self,
        registry: &Registry,
        wishes: &[PortRequest],
    ) -> Result<Vec<i64>, (usize, PortError)> {
        if wishes.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |status| (0, PortError::Failed(status));
        self.update_bitmap(registry, |taken| self.choose_ports(taken, wishes)).await.map_err(failed)?
    }

    /// Returns the ports that [`Self::allocate_ports`] would choose, without storing them.
    pub async fn preview_ports(
        &self,
        registry: &Registry,
        wishes: &[PortRequest],
    ) -> Result<Vec<i64>, (usize, PortError)> {
        let (mut taken, _) = self.read_bitmap(registry).await.map_err(|status| (0, PortError::Failed(status)))?;
        // As upstream, a dry run accepts ports outside the range.
        let outside = |wish: &PortRequest| match wish {
            PortRequest::Port(port) => self.port_offset(*port).is_none().then_some(*port),
            PortRequest::Any => None,
        };
        let (places, inside): (Vec<usize>, Vec<PortRequest>) =
            wishes.iter().copied().enumerate().filter(|(_, wish)| outside(wish).is_none()).unzip();
        let chosen = self.choose_ports(&mut taken, &inside).map_err(|(at, error)| (places[at], error))?;
        let mut chosen = chosen.into_iter();
        Ok(wishes.iter().filter_map(|wish| outside(wish).or_else(|| chosen.next())).collect())
    }

    /// Releases ports.
    pub async fn release_ports(&self, registry: &Registry, ports: &[u16]) -> Result<(), Status> {
        if ports.is_empty() {
            return Ok(());
        }
        self.update_bitmap(registry, |taken| {
            self.port_offsets(ports).for_each(|offset| taken.set(offset, false));
        })
        .await
    }

    /// Marks `used` as allocated and `leaked` as free.
    pub async fn reconcile_ports(&self, registry: &Registry, used: &[u16], leaked: &[u16]) -> Result<(), Status> {
        self.update_bitmap(registry, |taken| {
            self.port_offsets(leaked).for_each(|offset| taken.set(offset, false));
            self.port_offsets(used).for_each(|offset| taken.set(offset, true));
        })
        .await
    }

    /// Lists the allocated ports.
    pub async fn allocated_ports(&self, registry: &Registry) -> Result<Vec<u16>, Status> {
        let (taken, _) = self.read_bitmap(registry).await?;
        Ok(self.range.clone().enumerate().filter(|(offset, _)| taken.get(*offset)).map(|(_, port)| port).collect())
    }

    fn port_offset(&self, port: i64) -> Option<usize> {
        let port = u16::try_from(port).ok().filter(|port| self.range.contains(port))?;
        Some(usize::from(port - self.range.start()))
    }

    fn port_offsets(&self, ports: &[u16]) -> impl Iterator<Item = usize> {
        ports.iter().filter_map(|port| self.port_offset(i64::from(*port)))
    }

    fn choose_ports(&self, taken: &mut PortBitmap, wishes: &[PortRequest]) -> Result<Vec<i64>, (usize, PortError)> {
        // Requested ports first, so that none of them is chosen as a free one.
        for (at, wish) in wishes.iter().enumerate() {
            let PortRequest::Port(port) = wish else { continue };
            let offset =
                self.port_offset(*port).ok_or((at, PortError::OutOfRange(*self.range.start(), *self.range.end())))?;
            if taken.get(offset) {
                return Err((at, PortError::Taken));
            }
            taken.set(offset, true);
        }
        let mut ports = Vec::with_capacity(wishes.len());
        for (at, wish) in wishes.iter().enumerate() {
            ports.push(match wish {
                PortRequest::Port(port) => *port,
                PortRequest::Any => i64::from(self.choose_free_port(taken).ok_or((at, PortError::Full))?),
            });
        }
        Ok(ports)
    }

    /// Chooses a free port, starting at a random offset of the upper band, else of the lower one, as upstream does.
    fn choose_free_port(&self, taken: &mut PortBitmap) -> Option<u16> {
        let size = self.range.len();
        let reserved = if size <= 16 { 0 } else { (size / 32).clamp(16, 128) };
        [reserved..size, 0..reserved].into_iter().filter(|band| !band.is_empty()).find_map(|band| {
            let start = fastrand::usize(..band.len());
            let mut offsets = (0..band.len()).map(|step| band.start + (start + step) % band.len());
            let offset = offsets.find(|offset| !taken.get(*offset))?;
            taken.set(offset, true);
            Some(self.range.start() + u16::try_from(offset).ok()?)
        })
    }

    /// Reads, changes and writes the bitmap with a revision precondition.
    async fn update_bitmap<T>(
        &self,
        registry: &Registry,
        mut edit: impl FnMut(&mut PortBitmap) -> T,
    ) -> Result<T, Status> {
        let _alone = self.changing.lock().await;
        for _ in 0..RETRIES {
            let (before, guard) = self.read_bitmap(registry).await?;
            let mut taken = before.clone();
            let outcome = edit(&mut taken);
            if taken.to_bytes() == before.to_bytes() && guard != Precondition::Absent {
                return Ok(outcome);
            }
            let write = WriteRequest {
                key: KEY.into(),
                precondition: guard,
                value: Some(document::encode_document(&self.range_allocation(&taken))),
                ttl: None,
            };
            match registry.store().write(write).await {
                Ok(_) => return Ok(outcome),
                Err(store::StoreError::Conflict { .. }) => {}
                Err(error) => return Err(Status::internal_error(error)),
            }
        }
        Err(Status::internal_error("node port allocation conflicts with other servers; retry the request"))
    }

    async fn read_bitmap(&self, registry: &Registry) -> Result<(PortBitmap, Precondition), Status> {
        let Some(record) = registry.store().get(KEY).await.map_err(Status::internal_error)? else {
            return Ok((PortBitmap::default(), Precondition::Absent));
        };
        let object = document::decode_record(&record).map_err(Status::internal_error)?;
        // The bitmap of another range has other ports: the next repair adds those of the services.
        let same = meta::string_at(&object, &["range"]) == self.range_text();
        let bytes = BASE64_STANDARD.decode(meta::string_at(&object, &["data"])).unwrap_or_default();
        let taken = if same { PortBitmap::from_bytes(&bytes) } else { PortBitmap::default() };
        Ok((taken, Precondition::Revision(record.revision)))
    }

    fn range_text(&self) -> String {
        format!("{}-{}", self.range.start(), self.range.end())
    }

    fn range_allocation(&self, taken: &PortBitmap) -> Value {
        let data = BASE64_STANDARD.encode(taken.to_bytes());
        json!({"apiVersion": "v1", "kind": "RangeAllocation", "metadata": {"name": "servicenodeports"},
            "range": self.range_text(), "data": data})
    }
}

impl PortBitmap {
    /// Decodes a big-endian number, as upstream encodes the bitmap.
    fn from_bytes(bytes: &[u8]) -> Self {
        let bits = bytes.iter().rev().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect();
        Self { bits }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().enumerate().fold(0_u8, |byte, (at, bit)| byte | u8::from(*bit) << at);
        let bytes: Vec<u8> = self.bits.chunks(8).map(byte).rev().collect();
        bytes.into_iter().skip_while(|byte| *byte == 0).collect()
    }

    fn get(&self, offset: usize) -> bool {
        self.bits.get(offset).copied().unwrap_or_default()
    }

    fn set(&mut self, offset: usize, value: bool) {
        if offset >= self.bits.len() {
            self.bits.resize(offset + 1, false);
        }
        self.bits[offset] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmap_has_upstream_byte_order() {
        let mut taken = PortBitmap::default();
        taken.set(0, true);
        taken.set(9, true);
        assert_eq!(taken.to_bytes(), [2, 1]);
        taken.set(9, false);
        assert_eq!(taken.to_bytes(), [1]);
        let read = PortBitmap::from_bytes(&[2, 1]);
        assert!(read.get(0) && read.get(9) && !read.get(8) && !read.get(1000));
    }

    #[test]
    fn requested_ports_are_chosen_before_free_ones() {
        let ports = NodePortAllocator::new(30000..=30001);
        let mut taken = PortBitmap::default();
        assert_eq!(
            ports.choose_ports(&mut taken, &[PortRequest::Any, PortRequest::Port(30000)]).unwrap(),
            [30001, 30000]
        );
        assert!(matches!(ports.choose_ports(&mut taken, &[PortRequest::Any]), Err((0, PortError::Full))));
        let error = ports.choose_ports(&mut taken, &[PortRequest::Port(80)]).unwrap_err().1;
        let want = "provided port is not in the valid range. The range of valid ports is 30000-30001";
        assert_eq!(error.to_string(), want);
    }

    #[test]
    fn free_port_comes_from_the_upper_band_first() {
        let ports = NodePortAllocator::new(30000..=32767);
        let mut taken = PortBitmap::default();
        for _ in 0..2768 - 86 {
            assert!(ports.choose_free_port(&mut taken).unwrap() >= 30086);
        }
        assert!(ports.choose_free_port(&mut taken).unwrap() < 30086);
    }
}
