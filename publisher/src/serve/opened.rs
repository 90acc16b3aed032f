//! A file that is open, and what is known of it: of the file itself, whatever its path leads to meanwhile.

use std::{fs, io, path::Path, time::SystemTime};

use http::HeaderValue;
use resync_core::build::open_beneath;

/// A file that is open, to be answered with.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: fs::File,
    /// In bytes.
    pub(super) length: u64,
    pub(super) modified: SystemTime,
    pub(super) media_type: HeaderValue,
}

impl Opened {
    /// `None` if it is no regular file. The name tells its media type.
    pub(super) fn of(file: fs::File, name: &Path) -> io::Result<Option<Self>> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let media_type = mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream");
        Ok(Some(Self {
            file,
            length: metadata.len(),
            modified: metadata.modified()?,
            media_type: HeaderValue::from_static(media_type),
        }))
    }

    /// One of the publisher's own files. The folder may be reached by symbolic links, as an operator sets them; the file itself is none,
    /// since the publisher writes none. What is no regular file is [`io::ErrorKind::NotFound`].
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map_or(path, Path::new);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = open_beneath(folder.unwrap_or(Path::new(".")), name)?;
        Self::of(file, name)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_of_the_publisher_is_opened_in_a_folder_that_is_a_link_but_not_through_a_link_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("elsewhere")).unwrap();
        for name in ["secret", "elsewhere/list.xml"] {
            fs::write(place.path().join(name), name).unwrap();
        }
        symlink("elsewhere", place.path().join("resync")).unwrap();
        symlink("../secret", place.path().join("elsewhere/resourcelist-1.xml")).unwrap();
        let folder = place.path().join("resync");
        let list = Opened::at(&folder.join("list.xml")).unwrap();
        assert_eq!((list.length, list.media_type.as_bytes()), (18, &b"text/xml"[..]));
        let link = Opened::at(&folder.join("resourcelist-1.xml")).unwrap_err();
        assert_ne!(link.kind(), io::ErrorKind::NotFound, "it must not look like an absence");
    }

    #[test]
    fn what_is_no_file_is_not_found() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("folder")).unwrap();
        for name in ["folder", "nothing"] {
            let error = Opened::at(&place.path().join(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
        }
    }
}
