/// What a file is opened for.
public enum StorageAccess: Sendable {
    case reading
    case writing
    /// For writing, empty: made if it is missing, emptied if it is there.
    case creating
}

/// What came of asking for a lock.
public enum LockAttempt {
    case taken(any StorageLock)
    /// Another process has it; its id, when the file says so.
    case heldElsewhere(processID: Int32?)
}

/// A lock, held as long as this object lives.
public protocol StorageLock: AnyObject, Sendable {}

/// One directory of files, and nothing outside it. Names are plain file names, without a slash.
///
/// Calls are one a batch, never one a row, so an existential costs nothing that matters; in exchange tests can
/// put a directory here that fails in every way a disk can.
public protocol StorageDirectory: AnyObject, Sendable {
    /// For messages to people.
    var path: String { get }

    func names() throws(SystemError) -> [String]
    func open(_ name: String, for access: StorageAccess) throws(SystemError) -> any StorageFile
    /// Replaces `newName` if it is there. Durable after `sync`.
    func rename(_ name: String, to newName: String) throws(SystemError)
    /// Durable after `sync`.
    func remove(_ name: String) throws(SystemError)
    /// Makes creations, renames and removals durable.
    func sync() throws(SystemError)
    /// Takes the exclusive lock on the named file and writes this process's id into it.
    func lock(_ name: String) throws(SystemError) -> LockAttempt
    func freeBytes() throws(SystemError) -> UInt64
}

/// One open file; closed when the last reference goes.
public protocol StorageFile: AnyObject, Sendable {
    /// For messages to people.
    var path: String { get }

    /// Fills as much of the buffer as the file has from `position` on; fewer bytes than asked means the file ends there.
    func read(into buffer: UnsafeMutableRawBufferPointer, at position: UInt64) throws(SystemError) -> Int
    /// Writes all of the bytes or throws; after a throw any part of them may be there.
    func write(_ bytes: RawSpan, at position: UInt64) throws(SystemError)
    /// Returns once all that was written is durable. After a throw nothing is known of any byte written since the
    /// last success: Linux drops pages it could not write, so they must be *written* again, not only synced again.
    func sync() throws(SystemError)
    func truncate(to size: UInt64) throws(SystemError)
    /// Makes the file at least `size` bytes long, with space set aside for them where the file system can.
    func reserve(_ size: UInt64) throws(SystemError)
    func size() throws(SystemError) -> UInt64
}

extension StorageFile {
    /// The whole file, where it is no longer than that; what is behind is left out.
    public func contents(atMost limit: UInt64) throws(SystemError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Int(clamping: min(try size(), limit)))
        // SAFETY: the file is read into the buffer alone, which lives for the call.
        let answer = unsafe bytes.withUnsafeMutableBytes { buffer in
            Result { () throws(SystemError) in unsafe try read(into: buffer, at: 0) }
        }
        bytes.removeLast(bytes.count - (try answer.get()))
        return bytes
    }

    /// So many bytes from there, or as many as there are.
    public func bytes(at position: UInt64, count: Int) throws(SystemError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        // SAFETY: the file is read into the buffer alone, which lives for the call.
        let answer = unsafe bytes.withUnsafeMutableBytes { buffer in
            Result { () throws(SystemError) in unsafe try read(into: buffer, at: position) }
        }
        bytes.removeLast(count - (try answer.get()))
        return bytes
    }
}
