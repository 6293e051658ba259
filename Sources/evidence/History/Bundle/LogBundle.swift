import Bytes
import Change
import Diagnostics
import EventLog
import Glibc
import System

/// A window of a log in one file, with everything that is needed to read it elsewhere. The file is an archive of a
/// log's directory (`log/…`) and of files that describe it (`bundle.json` first). Readers use it in place; nothing is
/// unpacked.
public final class LogBundle: Sendable {
    public static let manifestName = "bundle.json"
    public static let configurationName = "configuration.ndjson"
    public static let rulesName = "mask.rules"
    private static let logFolder = "log/"

    public let path: String
    private let file: any StorageFile
    private let members: [TapeArchive.Member]

    /// - Throws: `BundleError` if the file is no bundle.
    public init(_ path: String) throws {
        self.path = path
        file = try DiskDirectory(Directories.parent(of: path)).open(
            String(path.split(separator: "/").last ?? ""), for: .reading)
        guard let found = try TapeArchive.members(of: file) else {
            throw BundleError(path: path, reason: "it is not a bundle, or not a whole one")
        }
        guard found.contains(where: { $0.name == Self.manifestName }) else {
            throw BundleError(path: path, reason: "it is an archive of something else")
        }
        members = found
    }

    /// Returns another file of the bundle; nil if it is missing or larger than 16 MiB.
    public func contents(of name: String) throws(SystemError) -> [UInt8]? {
        guard let member = members.first(where: { $0.name == name }), member.size <= 16 << 20 else { return nil }
        return try file.bytes(at: member.position, count: Int(member.size))
    }

    /// Masking that was applied for good when the bundle was made. Anything that the bundle does not state counts as
    /// masked.
    public var masking: Masking {
        let text = { [self] (name: String) in String(decoding: (try? contents(of: name)) ?? [], as: UTF8.self) }
        let manifest = BundleManifest((try? contents(of: Self.manifestName)) ?? [])
        let columns = { (name: String) in
            (manifest[name] ?? "").split(separator: ", ").compactMap { ColumnMask(String($0)) }
        }
        return Masking(
            (try? MaskRules(file: text(Self.rulesName))) ?? .usual, hiding: columns("also_masked"),
            showing: columns("unmasked"))
    }

    /// Directory of the log inside the bundle.
    public var directory: any StorageDirectory {
        let files = members.filter { $0.name.hasPrefix(Self.logFolder) }.map { member in
            (String(member.name.dropFirst(Self.logFolder.count)), member)
        }
        return BundledDirectory(path: path, file: file, files: Dictionary(files) { first, _ in first })
    }
}

/// Reason why a file cannot be opened as a bundle, or why a bundle cannot be made.
public struct BundleError: Error, Sendable, CustomStringConvertible {
    public let path: String
    public let reason: String

    public var description: String { "\(path): \(reason)" }
}

/// Read-only directory inside a file.
private final class BundledDirectory: StorageDirectory {
    let path: String
    private let file: any StorageFile
    private let files: [String: TapeArchive.Member]

    init(path: String, file: any StorageFile, files: [String: TapeArchive.Member]) {
        self.path = path
        self.file = file
        self.files = files
    }

    private func refusal(_ operation: String) -> SystemError {
        SystemError(operation: operation, subject: path, code: EROFS)
    }

    func names() throws(SystemError) -> [String] { files.keys.sorted() }

    func open(_ name: String, for access: StorageAccess) throws(SystemError) -> any StorageFile {
        guard case .reading = access else { throw refusal("write") }
        guard let member = files[name] else {
            throw SystemError(operation: "open", subject: "\(path): \(name)", code: ENOENT)
        }
        return BundledFile(path: "\(path): \(name)", file: file, member: member)
    }

    func rename(_ name: String, to newName: String) throws(SystemError) { throw refusal("rename") }
    func remove(_ name: String) throws(SystemError) { throw refusal("remove") }
    func sync() throws(SystemError) { throw refusal("sync") }
    func lock(_ name: String) throws(SystemError) -> LockAttempt { throw refusal("lock") }
    func freeBytes() throws(SystemError) -> UInt64 { throw refusal("statvfs") }
}

private final class BundledFile: StorageFile {
    let path: String
    private let file: any StorageFile
    private let member: TapeArchive.Member

    init(path: String, file: any StorageFile, member: TapeArchive.Member) {
        self.path = path
        self.file = file
        self.member = member
    }

    func read(into buffer: UnsafeMutableRawBufferPointer, at position: UInt64) throws(SystemError) -> Int {
        guard position < member.size else { return 0 }
        let count = min(UInt64(buffer.count), member.size - position)
        // SAFETY: a part of the caller's buffer, for the call.
        let part = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[..<Int(count)])
        return unsafe try file.read(into: part, at: member.position + position)
    }

    private var refusal: SystemError { SystemError(operation: "write", subject: path, code: EROFS) }

    func write(_ bytes: RawSpan, at position: UInt64) throws(SystemError) { throw refusal }
    func sync() throws(SystemError) { throw refusal }
    func truncate(to size: UInt64) throws(SystemError) { throw refusal }
    func reserve(_ size: UInt64) throws(SystemError) { throw refusal }
    func size() throws(SystemError) -> UInt64 { member.size }
}
