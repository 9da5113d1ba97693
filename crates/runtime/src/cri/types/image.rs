//! Messages of the `ImageService` calls.

use super::*;

messages! {
    ImageSpec {
        image: string = 1,
        annotations: map = 2,
        user_specified_image: string = 18,
        runtime_handler: string = 19,
        image_ref: string = 20,
    }
    ImageFilter { image: ?ImageSpec = 1 }
    ListImagesRequest { filter: ?ImageFilter = 1 }
    Image {
        id: string = 1,
        repo_tags: [string] = 2,
        repo_digests: [string] = 3,
        size: uint64 = 4,
        uid: ?Int64Value = 5,
        username: string = 6,
        spec: ?ImageSpec = 7,
        pinned: bool = 8,
    }
    ListImagesResponse { images: [Image] = 1 }
    StreamImagesRequest { filter: ?ImageFilter = 1 }
    StreamImagesResponse { images: [Image] = 1 }
    ImageStatusRequest { image: ?ImageSpec = 1, verbose: bool = 2 }
    ImageStatusResponse { image: ?Image = 1, info: map = 2 }
    AuthConfig {
        username: string = 1,
        password: string = 2,
        auth: string = 3,
        server_address: string = 4,
        identity_token: string = 5,
        registry_token: string = 6,
    }
    PullImageRequest { image: ?ImageSpec = 1, auth: ?AuthConfig = 2, sandbox_config: ?PodSandboxConfig = 3 }
    PullImageResponse { image_ref: string = 1 }
    RemoveImageRequest { image: ?ImageSpec = 1 }
    RemoveImageResponse {}
    ImageFsInfoRequest {}
    FilesystemIdentifier { mountpoint: string = 1 }
    ImageFsInfoResponse { image_filesystems: [FilesystemUsage] = 1, container_filesystems: [FilesystemUsage] = 2 }
}
