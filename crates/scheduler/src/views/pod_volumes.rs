//! The volumes of a pod, as far as scheduling reads them.

use std::sync::Arc;

use k8s_openapi::api::core::v1;

use crate::intern::intern;

/// A volume that has a say in where its pod runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PodVolume {
    /// A PersistentVolumeClaim of this name.
    Claim(Arc<str>),
    /// A claim that is generated for the volume of this name.
    Ephemeral(Arc<str>),
    /// A disk that may be used by one pod only, unless all read.
    ExclusiveDisk(ExclusiveDisk),
    /// An inline volume of this CSI driver.
    Csi(Arc<str>),
    /// An image mounted as a volume.
    Image(Arc<str>),
}

/// A disk of one of upstream's in-tree volume plug-ins that excludes other users.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExclusiveDisk {
    /// Name and whether it is read-only.
    GcePersistentDisk(Arc<str>, bool),
    /// Volume id.
    AwsElasticBlockStore(Arc<str>),
    /// Qualified name and whether it is read-only.
    Iscsi(Arc<str>, bool),
    /// Monitors, pool, image and whether it is read-only.
    Rbd(Box<[Arc<str>]>, Arc<str>, Arc<str>, bool),
    /// Disk name and URI of an Azure disk: excludes no one, but counts as an attachable volume.
    AzureDisk(Arc<str>),
}

impl ExclusiveDisk {
    /// Whether two pods with these disks exclude each other.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::GcePersistentDisk(name, read), Self::GcePersistentDisk(other, other_reads)) => {
                name == other && !(*read && *other_reads)
            }
            (Self::AwsElasticBlockStore(id), Self::AwsElasticBlockStore(other)) => id == other,
            (Self::Iscsi(iqn, read), Self::Iscsi(other, other_reads)) => iqn == other && !(*read && *other_reads),
            (
                Self::Rbd(monitors, pool, image, read),
                Self::Rbd(other_monitors, other_pool, other_image, other_reads),
            ) => {
                monitors.iter().any(|monitor| other_monitors.contains(monitor))
                    && pool == other_pool
                    && image == other_image
                    && !(*read && *other_reads)
            }
            _ => false,
        }
    }

    /// The in-tree plug-in, its CSI driver and the volume handle, if the volume counts as one of a CSI driver.
    pub fn migrated_driver(&self) -> Option<(&'static str, &'static str, String)> {
        match self {
            Self::GcePersistentDisk(name, _) => {
                let handle = format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{name}");
                Some(("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", handle))
            }
            Self::AwsElasticBlockStore(id) => Some(("kubernetes.io/aws-ebs", "ebs.csi.aws.com", id.to_string())),
            Self::AzureDisk(uri) => Some(("kubernetes.io/azure-disk", "disk.csi.azure.com", uri.to_string())),
            Self::Iscsi(..) | Self::Rbd(..) => None,
        }
    }
}

impl PodVolume {
    /// Reads a volume; `None` if it has no say.
    pub fn from_volume(volume: &v1::Volume) -> Option<Self> {
        let is_read_only = |flag: Option<bool>| flag == Some(true);
        let text = |text: Option<&String>| intern(text.map_or("", String::as_str));
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some(Self::Claim(intern(&claim.claim_name)));
        }
        if volume.ephemeral.is_some() {
            return Some(Self::Ephemeral(intern(&volume.name)));
        }
        if let Some(csi) = &volume.csi {
            return Some(Self::Csi(intern(&csi.driver)));
        }
        if let Some(image) = &volume.image {
            return Some(Self::Image(text(image.reference.as_ref())));
        }
        let disk = if let Some(disk) = &volume.gce_persistent_disk {
            ExclusiveDisk::GcePersistentDisk(intern(&disk.pd_name), is_read_only(disk.read_only))
        } else if let Some(disk) = &volume.aws_elastic_block_store {
            ExclusiveDisk::AwsElasticBlockStore(intern(&disk.volume_id))
        } else if let Some(iscsi) = &volume.iscsi {
            ExclusiveDisk::Iscsi(intern(&iscsi.iqn), is_read_only(iscsi.read_only))
        } else if let Some(rbd) = &volume.rbd {
            let monitors = rbd.monitors.iter().map(|monitor| intern(monitor)).collect();
            let pool = rbd.pool.as_deref().map_or_else(|| intern("rbd"), intern);
            ExclusiveDisk::Rbd(monitors, pool, intern(&rbd.image), is_read_only(rbd.read_only))
        } else if let Some(disk) = &volume.azure_disk {
            ExclusiveDisk::AzureDisk(intern(&disk.disk_uri))
        } else {
            return None;
        };
        Some(Self::ExclusiveDisk(disk))
    }

    /// Returns the name of the claim of a pod's volume.
    pub fn claim_name(&self, pod_name: &str) -> Option<String> {
        match self {
            Self::Claim(name) => Some(name.to_string()),
            Self::Ephemeral(volume) => Some(format!("{pod_name}-{volume}")),
            _ => None,
        }
    }
}
