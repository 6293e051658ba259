import Bytes
import CLinux
import Glibc

/// Open directory on the disk. Its files are found through the open descriptor, even after the directory is moved.
public final class DiskDirectory: StorageDirectory {
    public let path: String
    private let owned: OwnedDescriptor
    private var descriptor: Int32 { owned.number }

    /// Opens the directory. If `creating` is true and the directory is missing, creates it (but not its parents) for
    /// this user alone.
    public init(_ path: String, creating: Bool = false) throws(SystemError) {
        if creating {
            do {
                // SAFETY: Swift passes a C string that lives for the call.
                _ = try systemCall("make directory", path) { unsafe mkdir(path, 0o700) }
            } catch  where error.code == EEXIST {
            }
        }
        self.path = path
        // SAFETY: as above.
        let descriptor = try systemCall("open", path) {
            unsafe tw_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
        }
        owned = OwnedDescriptor(descriptor)
    }

    private func path(of name: String) -> String { path + "/" + name }

    public func names() throws(SystemError) -> [String] {
        // A separate descriptor, because reading a directory moves the descriptor's position.
        // SAFETY: Swift passes a C string that lives for the call.
        let reading = try systemCall("open", path) {
            unsafe tw_openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
        }
        // SAFETY: `fdopendir` owns the descriptor if it succeeds, and `closedir` ends both.
        guard let stream = unsafe fdopendir(reading) else {
            let code = errno
            _ = close(reading)
            throw SystemError(operation: "list", subject: path, code: code)
        }
        defer { _ = unsafe closedir(stream) }
        var names: [String] = []
        // SAFETY: `readdir` answers an entry valid until the next call on this stream; its name is copied at once.
        while let entry = unsafe readdir(stream) {
            let name = unsafe String(cString: tw_entry_name(entry))
            if name != "." && name != ".." { names.append(name) }
        }
        return names
    }

    public func open(_ name: String, for access: StorageAccess) throws(SystemError) -> any StorageFile {
        let flags =
            switch access {
            case .reading: O_RDONLY
            case .writing: O_RDWR
            case .creating: O_RDWR | O_CREAT | O_TRUNC
            }
        // SAFETY: Swift passes a C string that lives for the call.
        let file = try systemCall("open", path(of: name)) {
            unsafe tw_openat(descriptor, name, flags | O_CLOEXEC, 0o600)
        }
        return DiskFile(OwnedDescriptor(file), path: path(of: name))
    }

    public func rename(_ name: String, to newName: String) throws(SystemError) {
        // SAFETY: Swift passes C strings that live for the call.
        _ = try systemCall("rename", path(of: name)) { unsafe renameat(descriptor, name, descriptor, newName) }
    }

    /// Moves a file to another directory of the same file system. The move is durable after `sync` of both directories.
    public func move(_ name: String, into other: DiskDirectory) throws(SystemError) {
        // SAFETY: Swift passes C strings that live for the call.
        _ = try systemCall("move", path(of: name)) { unsafe renameat(descriptor, name, other.descriptor, name) }
    }

    public func remove(_ name: String) throws(SystemError) {
        // SAFETY: Swift passes a C string that lives for the call.
        _ = try systemCall("remove", path(of: name)) { unsafe unlinkat(descriptor, name, 0) }
    }

    public func sync() throws(SystemError) {
        _ = try systemCall("fsync", path) { fsync(descriptor) }
    }

    public func freeBytes() throws(SystemError) -> UInt64 {
        var status = statvfs()
        // SAFETY: the kernel fills the local structure.
        _ = try systemCall("statvfs", path) { unsafe fstatvfs(descriptor, &status) }
        return UInt64(status.f_bavail) * UInt64(status.f_frsize)
    }

    public func lock(_ name: String) throws(SystemError) -> LockAttempt {
        // SAFETY: Swift passes a C string that lives for the call.
        let file = try systemCall("open", path(of: name)) {
            unsafe tw_openat(descriptor, name, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        }
        do {
            _ = try systemCall("lock", path(of: name)) { tw_flock(file, LOCK_EX | LOCK_NB) }
        } catch {
            let other = DiskFile(OwnedDescriptor(file), path: path(of: name))
            guard error.code == EWOULDBLOCK else { throw error }
            return .heldElsewhere(processID: Self.processID(in: other))
        }
        let held = DiskFile(OwnedDescriptor(file, isLocked: true), path: path(of: name))
        // The process id is only for people. If it cannot be written to a full disk, the hub must still start and wait
        // for space.
        try? Self.write(processID: getpid(), to: held)
        return .taken(DiskLock(file: held))
    }

    private static func write(processID: Int32, to file: DiskFile) throws(SystemError) {
        var text = ByteWriter()
        text.append(decimal: Int64(processID))
        text.append("\n")
        try file.truncate(to: 0)
        try file.write(text.bytes, at: 0)
    }

    private static func processID(in file: DiskFile) -> Int32? {
        // SAFETY: the kernel initialises the temporary buffer up to the count that is read, and only that is copied.
        let bytes = unsafe withUnsafeTemporaryAllocation(byteCount: 16, alignment: 1) { buffer in
            let filled = unsafe (try? file.read(into: buffer, at: 0)) ?? 0
            return unsafe Array(buffer.prefix(filled))
        }
        return Int32(String(decoding: bytes.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self))
    }
}
