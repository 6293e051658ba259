/// Purpose for which a file is opened.
public enum StorageAccess: Sendable {
    case reading
    case writing
    /// Writing to an empty file: a missing file is created, an existing one is emptied.
    case creating
}

/// Result of an attempt to take a lock.
public enum LockAttempt {
    case taken(any StorageLock)
    /// Another process holds the lock. The file contains its process id, unless that could not be written.
    case heldElsewhere(processID: Int32?)
}

/// Lock that is held as long as this object lives.
public protocol StorageLock: AnyObject, Sendable {}

/// Directory of files. All operations stay inside it: names are plain file names, without a slash.
///
/// The hub makes one call for each batch, not for each row, so the cost of a protocol value does not matter. In tests,
/// a directory that fails like a broken disk can take its place.
public protocol StorageDirectory: AnyObject, Sendable {
    /// Path of the directory, for messages to people.
    var path: String { get }

    func names() throws(SystemError) -> [String]
    func open(_ name: String, for access: StorageAccess) throws(SystemError) -> any StorageFile
    /// Renames a file and replaces an existing `newName`. The change is durable after `sync`.
    func rename(_ name: String, to newName: String) throws(SystemError)
    /// Removes a file. The change is durable after `sync`.
    func remove(_ name: String) throws(SystemError)
    /// Makes creations, renames and removals durable.
    func sync() throws(SystemError)
    /// Tries to take the exclusive lock on the named file. If it succeeds, writes this process's id into the file.
    func lock(_ name: String) throws(SystemError) -> LockAttempt
    func freeBytes() throws(SystemError) -> UInt64
}

extension StorageDirectory {
    /// Replaces the named file as a whole. After a crash, the file has either the old or the new bytes.
    public func replace(_ name: String, with bytes: RawSpan) throws(SystemError) {
        let unfinished = name + ".new"
        let file = try open(unfinished, for: .creating)
        try file.write(bytes, at: 0)
        try file.sync()
        try rename(unfinished, to: name)
        try sync()
    }
}

/// Open file. It is closed when the last reference to it is released.
public protocol StorageFile: AnyObject, Sendable {
    /// Path of the file, for messages to people.
    var path: String { get }

    /// Fills the buffer with bytes of the file, beginning at `position`. Returns fewer bytes than requested only at the
    /// end of the file.
    func read(into buffer: UnsafeMutableRawBufferPointer, at position: UInt64) throws(SystemError) -> Int
    /// Writes all of the bytes, or throws. After an error, any part of them may have been written.
    func write(_ bytes: RawSpan, at position: UInt64) throws(SystemError)
    /// Makes all written bytes durable. After an error, no byte written since the last success is certain: Linux drops
    /// pages that it could not write. The caller must then *write* those bytes again, not only sync again.
    func sync() throws(SystemError)
    func truncate(to size: UInt64) throws(SystemError)
    /// Makes the file at least `size` bytes long, and reserves the space if the file system supports it.
    func reserve(_ size: UInt64) throws(SystemError)
    func size() throws(SystemError) -> UInt64
}

extension StorageFile {
    /// Returns the bytes of the file, at most the first `limit`.
    public func contents(atMost limit: UInt64) throws(SystemError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Int(clamping: min(try size(), limit)))
        // SAFETY: the file is read into the buffer alone, which lives for the call.
        let answer = unsafe bytes.withUnsafeMutableBytes { buffer in
            Result { () throws(SystemError) in unsafe try read(into: buffer, at: 0) }
        }
        bytes.removeLast(bytes.count - (try answer.get()))
        return bytes
    }

    /// Returns `count` bytes from `position` on; fewer if the file ends earlier.
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
