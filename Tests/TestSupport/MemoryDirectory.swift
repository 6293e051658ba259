import Glibc
import Synchronization
import System

/// Directory of files in memory that loses nothing. A test can declare the disk full for a number of writes. Each of
/// these writes leaves half of its bytes in the file, as on a real disk.
public final class MemoryDirectory: StorageDirectory {
    private struct State {
        var files: [String: MemoryFile] = [:]
        var locked: Set<String> = []
    }

    public let path = "memory"
    private let state = Mutex(State())
    private let disk = MemoryDisk()

    public init() {}

    /// Makes the next `writes` writes fail because the disk is full.
    public func beFull(for writes: Int) { disk.beFull(for: writes) }

    public func names() throws(SystemError) -> [String] { state.withLock { $0.files.keys.sorted() } }

    public func open(_ name: String, for access: StorageAccess) throws(SystemError) -> any StorageFile {
        let file = state.withLock { state in
            if access == .creating || state.files[name] == nil && access == .writing {
                state.files[name] = MemoryFile(path: path + "/" + name, disk: disk)
            }
            return state.files[name]
        }
        guard let file else { throw failure("open", name, ENOENT) }
        return file
    }

    public func rename(_ name: String, to newName: String) throws(SystemError) {
        let isThere = state.withLock { state in
            guard let file = state.files.removeValue(forKey: name) else { return false }
            state.files[newName] = file
            return true
        }
        guard isThere else { throw failure("rename", name, ENOENT) }
    }

    public func remove(_ name: String) throws(SystemError) {
        let removed = state.withLock { $0.files.removeValue(forKey: name) }
        guard removed != nil else { throw failure("remove", name, ENOENT) }
    }

    public func sync() throws(SystemError) {}

    public func lock(_ name: String) throws(SystemError) -> LockAttempt {
        let isFree = state.withLock { $0.locked.insert(name).inserted }
        return isFree ? .taken(MemoryLock { self.unlock(name) }) : .heldElsewhere(processID: nil)
    }

    private func unlock(_ name: String) { state.withLock { _ = $0.locked.remove(name) } }

    public func freeBytes() throws(SystemError) -> UInt64 { 1 << 40 }

    private func failure(_ operation: String, _ subject: String, _ code: Int32) -> SystemError {
        SystemError(operation: operation, subject: subject, code: code)
    }
}

/// State shared by a directory and its files; a file may outlive its directory.
private final class MemoryDisk: Sendable {
    private let fullFor = Mutex(0)

    func beFull(for writes: Int) { fullFor.withLock { $0 = writes } }

    func takesAWrite() -> Bool {
        fullFor.withLock { fullFor in
            guard fullFor > 0 else { return true }
            fullFor -= 1
            return false
        }
    }
}

private final class MemoryLock: StorageLock {
    private let unlock: @Sendable () -> Void

    init(_ unlock: @escaping @Sendable () -> Void) { self.unlock = unlock }

    deinit { unlock() }
}

private final class MemoryFile: StorageFile {
    let path: String
    private let disk: MemoryDisk
    private let bytes = Mutex<[UInt8]>([])

    init(path: String, disk: MemoryDisk) {
        self.path = path
        self.disk = disk
    }

    func read(into buffer: UnsafeMutableRawBufferPointer, at position: UInt64) throws(SystemError) -> Int {
        bytes.withLock { bytes in
            guard position < UInt64(bytes.count) else { return 0 }
            let some = bytes[Int(position)...].prefix(buffer.count)
            buffer.copyBytes(from: some)
            return some.count
        }
    }

    func write(_ span: RawSpan, at position: UInt64) throws(SystemError) {
        let given = span.withUnsafeBytes { Array($0) }
        guard disk.takesAWrite() else {
            put(Array(given.prefix(given.count / 2)), at: Int(position))
            throw SystemError(operation: "write", subject: path, code: ENOSPC)
        }
        put(given, at: Int(position))
    }

    private func put(_ given: [UInt8], at position: Int) {
        bytes.withLock { bytes in
            let missing = position + given.count - bytes.count
            if missing > 0 { bytes.append(contentsOf: [UInt8](repeating: 0, count: missing)) }
            bytes.replaceSubrange(position..<position + given.count, with: given)
        }
    }

    func sync() throws(SystemError) {}

    func truncate(to size: UInt64) throws(SystemError) {
        bytes.withLock { bytes in
            if size < bytes.count { bytes.removeLast(bytes.count - Int(size)) }
        }
    }

    func reserve(_ size: UInt64) throws(SystemError) {
        bytes.withLock { bytes in
            if size > bytes.count { bytes.append(contentsOf: [UInt8](repeating: 0, count: Int(size) - bytes.count)) }
        }
    }

    func size() throws(SystemError) -> UInt64 { bytes.withLock { UInt64($0.count) } }
}
