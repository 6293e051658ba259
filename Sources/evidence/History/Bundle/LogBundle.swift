import Bytes
import Change
import Diagnostics
import EventLog
import Glibc
import System

/// A window of a log in one file, with everything that is needed to read it elsewhere. The file is an archive of a
/// log's directory (`log/…`) and of files that describe it (`bundle.json` first). The log's files are compressed
/// (`….zst`); those of bundles of version 1 are not. Readers use it in place; nothing is unpacked.
public final class LogBundle: Sendable {
    public static let manifestName = "bundle.json"
    public static let configurationName = "configuration.ndjson"
    private static let logFolder = "log/"
    /// Version of the bundles that `BundleMaker` makes. Later versions cannot be read.
    public static let version = 2

    public let path: String
    private let file: any StorageFile
    private let members: [TapeArchive.Member]
    /// Masking of the values when the bundle was made; the original values are not in the bundle. Everything that the
    /// manifest does not state to be visible counts as masked.
    public let masking: Masking

    /// Opens the bundle.
    ///
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
        masking = try Self.masking(
            path, Self.directory(path, file, found), Self.contents(Self.manifestName, file, found))
    }

    private static func masking(
        _ path: String, _ directory: any StorageDirectory, _ manifest: [UInt8]?
    ) throws -> Masking {
        let manifest = BundleManifest(manifest ?? [])
        if let made = manifest.version, made > version {
            throw BundleError(path: path, reason: "it is a bundle of version \(made), which a newer tidewire made")
        }
        let columns = { (name: String) in
            (manifest[name] ?? "").split(separator: ", ").compactMap { ColumnMask(String($0)) }
        }
        do {
            guard let rules = try MaskRules(of: directory) else {
                throw BundleError(path: path, reason: "its mask rules are missing, so the columns to mask are unknown")
            }
            return Masking(rules, hiding: columns("also_masked"), showing: columns("unmasked"))
        } catch let error as MaskRulesError {
            throw BundleError(path: "\(path): \(MaskRulesFile.name)", reason: error.description)
        }
    }

    private static func contents(
        _ name: String, _ file: any StorageFile, _ members: [TapeArchive.Member]
    ) throws(SystemError) -> [UInt8]? {
        guard let member = members.first(where: { $0.name == name }), member.size <= 16 << 20 else { return nil }
        return try file.bytes(at: member.position, count: Int(member.size))
    }

    /// Returns the bytes of a file in the archive, such as `bundle.json`; nil if it is missing or larger than 16 MiB.
    public func contents(of name: String) throws(SystemError) -> [UInt8]? { try Self.contents(name, file, members) }

    /// Directory of the log inside the bundle, with the mask rules of the bundle.
    public var directory: any StorageDirectory { Self.directory(path, file, members) }

    private static func directory(
        _ path: String, _ file: any StorageFile, _ members: [TapeArchive.Member]
    ) -> any StorageDirectory {
        var files: [String: BundledDirectory.Member] = [:]
        for member in members where member.name.hasPrefix(logFolder) {
            let name = String(member.name.dropFirst(logFolder.count))
            let isCompressed = name.hasSuffix(SeekableFrames.suffix)
            let plain = isCompressed ? String(name.dropLast(SeekableFrames.suffix.count)) : name
            files[plain] = files[plain] ?? (member, isCompressed)
        }
        files[MaskRulesFile.name] = members.first { $0.name == MaskRulesFile.name }.map { ($0, false) }
        return BundledDirectory(path: path, file: file, files: files)
    }
}

/// Reason why a file cannot be opened as a bundle, or why a bundle cannot be made.
public struct BundleError: Error, Sendable, CustomStringConvertible {
    public let path: String
    public let reason: String

    public var description: String { "\(path): \(reason)" }
}

/// Read-only directory whose files are members of an archive.
private final class BundledDirectory: StorageDirectory {
    typealias Member = (entry: TapeArchive.Member, isCompressed: Bool)

    let path: String
    private let file: any StorageFile
    private let files: [String: Member]

    init(path: String, file: any StorageFile, files: [String: Member]) {
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
        let (place, entry) = ("\(path): \(name)", member.entry)
        guard member.isCompressed else { return BundledFile(path: place, file: file, member: entry) }
        return try CompressedFile(path: place, file: file, position: entry.position, size: entry.size)
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
