import Bytes
import Diagnostics
import Glibc
import System

/// Record of an action on the log that an operator may have to justify later: showing, copying or removing values.
public struct AuditNote: Sendable, Equatable {
    public enum Action: String, Sendable, CaseIterable {
        /// A command or request showed masked values.
        case unmask
        /// A window of the log was copied out of the log, for example into another database.
        case replay
        /// The values of a row were erased from the log.
        case forget
        /// An operator of the hub read from the log over the API.
        case read
        /// An operator sent a signal to the hub, such as a mark or a pause.
        case signal
        /// An operator disconnected the clients of a user, a login or a socket, or blocked them for a time.
        case kick
        /// An operator ended a block before its time.
        case unblock
        /// An operator made, changed, restarted or deleted a project.
        case project
    }

    /// Time of the action in microseconds since 1970.
    public var time: Int64
    public var action: Action
    /// Name of the operating system's user who ran the command.
    public var user: String
    /// Name of the user who became `user` for this command, for example with sudo; empty if unknown.
    public var behalf: String
    public var command: String
    /// Object of the action: names of columns, or the copied data and its target. It never contains a value of a row.
    public var what: String
    /// Claim `sub` of the operator's token; empty for a command that was not sent over the operators' API.
    public var subject: String
    /// Reason in the operator's own words; empty if none was given.
    public var reason: String

    public init(
        time: Int64, action: Action, user: String, behalf: String, command: String, what: String,
        subject: String = "", reason: String = ""
    ) {
        self.time = time
        self.action = action
        self.user = user
        self.behalf = behalf
        self.command = command
        self.what = what
        self.subject = subject
        self.reason = reason
    }
}

/// Append-only file that records each action on a log (`AuditNote`). Each line is on the disk before its action begins.
/// The file lies beside the log's segments. The hub and commands append to it, while only the hub writes the segments.
///
///     {"time":…,"action":…,"user":…,"behalf":…,"command":…,"what":…,"operator":…,"reason":…,
///      "after":"sum of the line before","sum":"CRC-32C of all before"}
///
/// `operator` and `reason` are left out if they are empty. Reads by operators have a file of their own, so that they
/// cannot fill the file with the records that must not be lost.
public struct AuditTrail: Sendable {
    public static let name = "audit"
    /// Name of the file for operators' reads. When it is full, it is renamed, and a new one begins.
    public static let readsName = name + readsSuffix
    public static let formerReadsName = readsName + formerSuffix
    public static let readsSuffix = ".reads"
    public static let formerSuffix = ".before"
    private static let lockName = "audit.lock"
    private let directory: any StorageDirectory
    private let name: String

    public init(in directory: any StorageDirectory, name: String = AuditTrail.name) {
        self.directory = directory
        self.name = name
    }

    /// Opens the trail in the file at this path. The file need not exist.
    ///
    /// - Throws: `SystemError` if the file's directory does not exist.
    public init(file path: String) throws(SystemError) {
        let slash = path.lastIndex(of: "/")
        let parent = slash.map { String(path[..<$0]) } ?? "."
        directory = try DiskDirectory(parent.isEmpty ? "/" : parent)
        name = slash.map { String(path[path.index(after: $0)...]) } ?? path
    }

    /// Returns the path of the audit file for a log: in the log's directory, or beside the bundle's file.
    public static func path(besideLog path: String) -> String {
        Directories.isDirectory(path) ? path + "/" + name : path + "." + name
    }

    /// Appends a line for the action. Returns when the line is on the disk.
    ///
    /// - Parameter former: name to which a full file is renamed before a new one begins; nil if a full file is an
    /// error.
    public func append(_ note: AuditNote, rotatingTo former: String? = nil) throws(AuditFailure) {
        do {
            let lock = try locked()
            defer { withExtendedLifetime(lock) {} }
            var (file, isNew) = try open()
            if let former, try file.size() >= UInt64(Limits.maximumReadAuditBytes) {
                try directory.rename(name, to: former)
                (file, isNew) = try open()
            }
            let size = try file.size()
            guard size < UInt64(Limits.maximumAuditBytes) else { throw AuditFailure.full(path) }
            let last = try Self.tail(of: file, size)
            var line = ByteWriter(capacity: 256)
            if size > 0, last.last != UInt8(ascii: "\n") { line.append("\n") }
            Self.encode(note, after: Self.sum(ofLast: last), to: &line)
            try file.write(line.bytes, at: size)
            try file.sync()
            if isNew { try directory.sync() }
        } catch let error as AuditFailure {
            throw error
        } catch {
            throw .failed("\(error)")
        }
    }

    /// Returns the bytes of all lines; empty if the file does not exist.
    public func contents() throws(SystemError) -> [UInt8] {
        do throws(SystemError) {
            return try directory.open(name, for: .reading).contents(atMost: UInt64(Limits.maximumAuditBytes) * 2)
        } catch  where error.code == ENOENT {
            return []
        }
    }

    private var path: String { directory.path + "/" + name }

    /// Acquires the file's lock, so that two processes do not write at the same time.
    private func locked() throws -> any StorageLock {
        for _ in 0..<100 {
            if case .taken(let lock) = try directory.lock(Self.lockName) { return lock }
            BackgroundThread.rest(nanoseconds: 20_000_000)
        }
        throw AuditFailure.failed("\(path) is being written by another process")
    }

    private func open() throws(SystemError) -> (file: any StorageFile, isNew: Bool) {
        do throws(SystemError) {
            return (try directory.open(name, for: .writing), false)
        } catch  where error.code == ENOENT {
            return (try directory.open(name, for: .creating), true)
        }
    }

    /// Returns the last bytes of the file, which contain at least the whole last line.
    private static func tail(of file: any StorageFile, _ size: UInt64) throws(SystemError) -> [UInt8] {
        let count = Int(min(size, UInt64(Limits.maximumAuditLineBytes)))
        var bytes = [UInt8](repeating: 0, count: count)
        // SAFETY: the file is read into the buffer alone, which lives for the call.
        let answer = unsafe bytes.withUnsafeMutableBytes { buffer in
            Result { () throws(SystemError) in unsafe try file.read(into: buffer, at: size - UInt64(count)) }
        }
        bytes.removeLast(count - (try answer.get()))
        return bytes
    }

    // MARK: Lines

    private static func encode(_ note: AuditNote, after sum: String, to writer: inout ByteWriter) {
        var line = ByteWriter(capacity: 256)
        let fields = [
            ("time", moment(note.time)), ("action", note.action.rawValue), ("user", note.user),
            ("behalf", note.behalf), ("command", note.command), ("what", note.what), ("operator", note.subject),
            ("reason", note.reason), ("after", sum),
        ]
        let known = fields.filter { !$0.1.isEmpty || !["operator", "reason"].contains($0.0) }
        for (index, (name, value)) in known.enumerated() {
            line.append(index == 0 ? "{" : ",")
            JSONText.appendString(name, to: &line)
            line.append(":")
            JSONText.appendString(String(value.prefix(4096)), to: &line)
        }
        let sum = hex(CRC32C.of(line.bytes))
        writer.append(line.bytes)
        writer.append(",\"sum\":\"")
        writer.append(Array(sum.utf8))
        writer.append("\"}\n")
    }

    /// Returns the time as text in UTC, with microseconds.
    private static func moment(_ microseconds: Int64) -> String {
        let milliseconds = WallTime(millisecondsSince1970: microseconds / 1000).description
        let rest = String(microseconds % 1000)
        return "\(milliseconds.dropLast())\(String(repeating: "0", count: 3 - rest.utf8.count))\(rest)Z"
    }

    private static func hex(_ sum: UInt32) -> String { String(Hex.text(UInt64(sum)).suffix(8)) }

    private static let sumBytes = 18

    /// Returns the checksum of a line without its line break; nil if it differs from the one that the line contains.
    public static func sum(of line: ArraySlice<UInt8>) -> String? {
        guard line.count > sumBytes else { return nil }
        let body = Array(line.dropLast(sumBytes))
        let sum = hex(CRC32C.of(body.rawBytes))
        return line.suffix(sumBytes).elementsEqual(Array(",\"sum\":\"\(sum)\"}".utf8)) ? sum : nil
    }

    private static func sum(ofLast tail: [UInt8]) -> String {
        tail.split(separator: UInt8(ascii: "\n")).last.flatMap { sum(of: $0) } ?? ""
    }
}

/// Reason why an action could not be recorded. The caller must then not carry it out.
public enum AuditFailure: Error, Sendable, CustomStringConvertible {
    case failed(String)
    case full(String)

    public var description: String {
        switch self {
        case .failed(let reason): reason
        case .full(let path): "\(path) has become too large; move it to an archive"
        }
    }
}
