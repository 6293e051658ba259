import CLinux
import Glibc

/// Open file on the disk. The descriptor is closed when the object is released. Data that must be durable is synced
/// before, so an error of closing does not matter.
public final class DiskFile: StorageFile {
    public let path: String
    private let owned: OwnedDescriptor
    private var descriptor: Int32 { owned.number }

    init(_ descriptor: consuming OwnedDescriptor, path: String) {
        owned = descriptor
        self.path = path
    }

    public func read(into buffer: UnsafeMutableRawBufferPointer, at position: UInt64) throws(SystemError) -> Int {
        var filled = 0
        while filled < buffer.count {
            // SAFETY: `filled` is below the buffer's count, so the kernel writes inside it.
            let count = try systemCall("read", path) {
                unsafe pread(
                    descriptor, buffer.baseAddress.map { unsafe $0 + filled }, buffer.count - filled,
                    off_t(position) + filled)
            }
            if count == 0 { break }
            filled += count
        }
        return filled
    }

    public func write(_ bytes: RawSpan, at position: UInt64) throws(SystemError) {
        var written = 0
        while written < bytes.byteCount {
            let rest = bytes.extracting(written..<bytes.byteCount)
            // SAFETY: the kernel reads the span's bytes inside the closure.
            let count = try systemCall("write", path) {
                unsafe rest.withUnsafeBytes {
                    unsafe pwrite(descriptor, $0.baseAddress, $0.count, off_t(position) + written)
                }
            }
            // After a short write without an error, the next call writes the rest or returns the error.
            written += count
        }
    }

    public func sync() throws(SystemError) {
        _ = try systemCall("fdatasync", path) { fdatasync(descriptor) }
    }

    public func truncate(to size: UInt64) throws(SystemError) {
        _ = try systemCall("truncate", path) { ftruncate(descriptor, off_t(size)) }
    }

    public func reserve(_ size: UInt64) throws(SystemError) {
        guard size > 0 else { return }
        do {
            _ = try systemCall("reserve", path) { tw_fallocate(descriptor, 0, off_t(size)) }
        } catch  where error.code == EOPNOTSUPP {
            // A file system that cannot reserve space allocates it as the file grows.
        }
    }

    public func size() throws(SystemError) -> UInt64 {
        var status = stat()
        // SAFETY: the kernel fills the local structure.
        _ = try systemCall("stat", path) { unsafe fstat(descriptor, &status) }
        return UInt64(status.st_size)
    }
}

/// Lock on a file of the disk. The kernel releases the lock when the process ends, for any reason.
final class DiskLock: StorageLock {
    private let file: DiskFile

    init(file: DiskFile) { self.file = file }
}
