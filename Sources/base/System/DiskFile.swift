import CLinux
import Glibc

/// A file of the kernel's. The descriptor is closed with the object.
public final class DiskFile: StorageFile {
    public let path: String
    private let descriptor: Int32

    init(descriptor: Int32, path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit {
        // Nothing depends on the answer: what had to be durable was synced before.
        _ = close(descriptor)
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
            // A short write without an error is followed by the reason, or by the rest.
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
            // A file system that cannot set space aside gives it as the file grows.
        }
    }

    /// For everybody who shares the descriptor.
    func unlock() { _ = tw_flock(descriptor, LOCK_UN) }

    public func size() throws(SystemError) -> UInt64 {
        var status = stat()
        // SAFETY: the kernel fills the local structure.
        _ = try systemCall("stat", path) { unsafe fstat(descriptor, &status) }
        return UInt64(status.st_size)
    }
}

/// The kernel lets go of the lock when the process dies, however it dies.
final class DiskLock: StorageLock {
    private let file: DiskFile

    init(file: DiskFile) { self.file = file }

    // A child that was forked and has not yet become its program holds the same lock until then: closing alone would
    // leave it with that child.
    deinit { file.unlock() }
}
