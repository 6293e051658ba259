import Bytes
import Crypto
import Diagnostics
import Glibc
import Settings
import Synchronization
import System

/// Error about stored projects that cannot be read or written, as a text for the operator.
public struct ProjectStoreError: Error, Sendable, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }
}

/// Reason why a description was not applied.
public enum ProjectRefusal: Error {
    case mistakes(ProjectMistakes)
    case store(ProjectStoreError)
}

/// Store of the projects that operators created over the API, in one file beside the event log. The file is read once.
///
/// Each change replaces the whole file, so that a crash leaves the old or the new one. A file that cannot be read is
/// never overwritten. Its secrets are encrypted with the configured key, or with one that the hub makes in a file
/// beside it. Unknown members of the file are kept.
public final class ProjectStore: Sendable {
    public static let fileName = "projects.json"
    private static let unfinished = "projects.json.new"

    fileprivate struct State {
        var records: [ProjectRecord]
        /// Names of deleted projects, oldest first.
        var deleted: [String] = []
        /// Members in the project file that this program does not know, which are kept when the file is written.
        var unknown: JSONObject
    }

    private let directory: any StorageDirectory
    let seal: ProjectSeal
    private let key: ProjectKey
    private let state: Mutex<State>
    /// Lock for one change, from reading the state until the file is written. Readers do not wait for it.
    private let writing = Mutex(())

    /// Opens the store, whose file is in the directory.
    ///
    /// - Parameter secret: setting `project_key`; nil if it is not set.
    public init(in directory: any StorageDirectory, key secret: Secret?) throws(ProjectStoreError) {
        let file = try Self.read(Self.fileName, in: directory)
        key = try ProjectKey(secret, in: directory, isNeeded: file != nil)
        seal = ProjectSeal(key.secret)
        self.directory = directory
        guard let file else {
            state = Mutex(State(records: [], unknown: JSONObject()))
            return
        }
        state = Mutex(try Self.state(of: file, seal, key, directory.path + "/" + Self.fileName))
    }

    // MARK: Reading

    public var all: [ProjectRecord] { state.withLock { $0.records } }

    public func record(named externalID: String) -> ProjectRecord? {
        state.withLock { state in state.records.first { $0.isNamed(externalID) } }
    }

    /// Names of projects that were deleted and not created again.
    var deleted: [String] { state.withLock { $0.deleted } }

    // MARK: Changing

    /// Applies a description and stores the resulting record. The record is on the disk before this method returns.
    ///
    /// - Parameters:
    ///   - configured: project of the settings. If the description names it and it is not stored, its record is
    ///     changed.
    ///   - check: throws the mistakes of a record, given the former one and the other stored records.
    public func apply(
        _ description: ProjectDescription, configured: ProjectRecord? = nil, _ defaults: ProjectDefaults, at now: Int64,
        check: (_ new: ProjectRecord, _ old: ProjectRecord?, _ others: [ProjectRecord]) throws(ProjectMistakes) ->
            Void = {
                (_, _, _) throws(ProjectMistakes) in
            }
    ) throws(ProjectRefusal) -> (record: ProjectRecord, old: ProjectRecord?) {
        try writing.withLock { _ throws(ProjectRefusal) in
            var new = state.withLock { $0 }
            let index = description.externalID.flatMap { name in new.records.firstIndex { $0.isNamed(name) } }
            let old = index.map { new.records[$0] } ?? configured.flatMap { $0.isMeant(by: description) ? $0 : nil }
            let record: ProjectRecord
            do throws(ProjectMistakes) {
                record = try description.record(replacing: old, defaults, at: now)
                try check(record, old, new.records.enumerated().filter { $0.offset != index }.map(\.element))
            } catch {
                throw .mistakes(error)
            }
            assert(old == nil || old?.id == record.id, "a project keeps its id")
            if let index {
                assert(new.records[index].isNamed(record.externalID), "a record replaces one of its own name")
                new.records[index] = record
            } else {
                let namesake = new.records.first { $0.isNamed(record.externalID) }
                assert(namesake == nil, "a name is added once")
                guard new.records.count < Limits.maximumProjects else {
                    throw .store(ProjectStoreError("there are \(Limits.maximumProjects) projects already"))
                }
                new.records.append(record)
                new.deleted.removeAll { $0 == record.externalID }
            }
            do throws(ProjectStoreError) {
                try replace(new)
            } catch {
                throw .store(error)
            }
            return (record, old)
        }
    }

    /// Removes the project and returns its record; nil if there is none of that name. The change is on the disk before
    /// this method returns.
    ///
    /// - Parameter isRemembered: true if the hub must refuse the name from now on, until it is used for a new project.
    func remove(
        _ externalID: String, remembering isRemembered: Bool = true
    ) throws(ProjectStoreError) -> ProjectRecord? {
        try writing.withLock { _ throws(ProjectStoreError) -> ProjectRecord? in
            var new = state.withLock { $0 }
            guard let index = new.records.firstIndex(where: { $0.isNamed(externalID) }) else { return nil }
            let record = new.records.remove(at: index)
            if isRemembered { new.remember(deleted: record.externalID) }
            try replace(new)
            return record
        }
    }

    private func replace(_ new: State) throws(ProjectStoreError) {
        let bytes = Self.file(of: new, seal)
        guard bytes.count <= Limits.maximumProjectFileBytes else {
            throw ProjectStoreError("the projects would take more than \(Limits.maximumProjectFileBytes) bytes")
        }
        do throws(SystemError) {
            try key.keep(in: directory)
            try directory.replace(Self.fileName, with: bytes, through: Self.unfinished)
        } catch {
            throw ProjectStoreError("projects cannot be stored: \(error)")
        }
        state.withLock { $0 = new }
    }
}

// MARK: The file

extension ProjectStore {
    private static let version = 1
    /// Known text that the file contains in encrypted form, by which a wrong key is distinguished from a damaged file.
    private static let proof = "these projects can be read"

    private static func file(of state: State, _ seal: ProjectSeal) -> [UInt8] {
        var members = JSONObject([
            ("version", .number(version)), ("proof", .string(seal.seal(proof, of: "", "proof"))),
            ("projects", .array(state.records.map { $0.stored(seal) })),
        ])
        if !state.deleted.isEmpty { members["deleted"] = .array(state.deleted.map { .string($0) }) }
        for (name, value) in state.unknown.members {
            assert(members[name] == nil, "an unknown member of the file replaces no known one")
            members[name] = value
        }
        return JSONValue.object(members).bytes + [UInt8(ascii: "\n")]
    }

    private static func state(
        of bytes: [UInt8], _ seal: ProjectSeal, _ key: ProjectKey, _ path: String
    ) throws(ProjectStoreError) -> State {
        let value: JSONValue
        do throws(ByteError) {
            value = try JSONValue.parse(
                bytes, maximumDepth: Limits.maximumProjectDepth + 6)
        } catch {
            throw ProjectStoreError("\(path) is damaged, and left as it is: \(error)")
        }
        guard var unknown = value.object, unknown["version"]?.integer == version else {
            throw ProjectStoreError("\(path) is of a version that this program does not know, and left as it is")
        }
        guard let sealed = unknown["proof"]?.string, let projects = unknown["projects"]?.array else {
            throw ProjectStoreError("\(path) is damaged, and left as it is: it has no proof or no projects")
        }
        guard seal.open(sealed, of: "", "proof") == proof else {
            throw ProjectStoreError("\(path) was encrypted with another key than \(key.origin); \(key.hint)")
        }
        let deleted = unknown["deleted"]?.array?.compactMap(\.string) ?? []
        for name in ["version", "proof", "projects", "deleted"] { unknown[name] = nil }
        do throws(StoredProjectMistake) {
            var records: [ProjectRecord] = []
            for value in projects { records.append(try ProjectRecord(stored: value, seal)) }
            return State(records: records, deleted: deleted, unknown: unknown)
        } catch {
            throw ProjectStoreError("\(path) is damaged, and left as it is: \(error.message)")
        }
    }

    /// Returns the contents of a file; nil if there is no such file.
    fileprivate static func read(
        _ name: String, in directory: any StorageDirectory
    ) throws(ProjectStoreError) -> [UInt8]? {
        do throws(SystemError) {
            return try directory.contents(of: name, maximumBytes: Limits.maximumProjectFileBytes)
        } catch {
            throw ProjectStoreError("stored projects cannot be read: \(error)")
        }
    }
}

// MARK: The key

/// Key that encrypts the secrets of projects: the configured text, or random bytes from a file.
struct ProjectKey: Sendable {
    static let fileName = "projects.key"
    private static let unfinished = "projects.key.new"
    private static let randomBytes = 32

    let secret: [UInt8]
    private let isConfigured: Bool
    /// True if the key is stored or configured. A new key is stored before anything that it encrypts.
    private let isKept: Bool

    init(_ configured: Secret?, in directory: any StorageDirectory, isNeeded: Bool) throws(ProjectStoreError) {
        isConfigured = configured != nil
        if let configured {
            (secret, isKept) = (Array(configured.revealed.utf8), true)
            return
        }
        if let bytes = try ProjectStore.read(Self.fileName, in: directory) {
            let text = String(decoding: bytes, as: UTF8.self).filter { !$0.isWhitespace }
            guard let key = Base64URL.decode(text.utf8), key.count == Self.randomBytes else {
                throw ProjectStoreError(
                    "\(directory.path)/\(Self.fileName) is damaged; restore it, or set project_key "
                        + "(\(Setting(\.projectKey).environmentName)) to the key that the projects were stored with")
            }
            (secret, isKept) = (key, true)
            return
        }
        guard !isNeeded else {
            throw ProjectStoreError(
                "\(directory.path)/\(ProjectStore.fileName) cannot be decrypted: there is no "
                    + "\(directory.path)/\(Self.fileName), and project_key (\(Setting(\.projectKey).environmentName)) "
                    + "is not set")
        }
        (secret, isKept) = (Secrets.randomBytes(Self.randomBytes), false)
    }

    /// Stores a new key in its file, which only the owner can read.
    func keep(in directory: any StorageDirectory) throws(SystemError) {
        guard !isKept, try directory.contents(of: Self.fileName, maximumBytes: 1 << 10) == nil else { return }
        assert(secret.count == Self.randomBytes, "a key that the hub made has its length")
        let text = Base64URL.encode(secret.span) + "\n"
        try directory.replace(Self.fileName, with: Array(text.utf8), through: Self.unfinished)
    }

    var origin: String {
        isConfigured ? "project_key (\(Setting(\.projectKey).environmentName)) says" : "the one in \(Self.fileName)"
    }

    var hint: String {
        isConfigured
            ? "set it to the key that the projects were stored with, or unset it if that is in \(Self.fileName)"
            : "set project_key (\(Setting(\.projectKey).environmentName)) to the key that the projects were stored with"
    }
}

extension ProjectRecord {
    fileprivate func isMeant(by description: ProjectDescription) -> Bool {
        description.externalID.map(isNamed) ?? false
    }

    /// Compares names byte by byte. Swift's `==` treats different encodings of an accented letter as equal, host names
    /// do not.
    func isNamed(_ name: String) -> Bool { externalID.utf8.elementsEqual(name.utf8) }
}

extension ProjectStore.State {
    fileprivate mutating func remember(deleted name: String) {
        deleted.removeAll { $0 == name }
        deleted.append(name)
        guard deleted.count > Limits.maximumDeletedNames else { return }
        Log.shared.warning(
            "the hub no longer remembers the name of a project that was deleted long ago: too many were deleted since",
            [.project(deleted.removeFirst()), .limit(Limits.maximumDeletedNames)])
    }
}

extension StorageDirectory {
    /// Replaces the file as a whole: a crash leaves the old file or the new one.
    fileprivate func replace(_ name: String, with bytes: [UInt8], through unfinished: String) throws(SystemError) {
        let file = try open(unfinished, for: .creating)
        try file.write(bytes.rawBytes, at: 0)
        try file.sync()
        try rename(unfinished, to: name)
        try sync()
    }

    /// Returns the contents of a file; nil if there is no such file.
    fileprivate func contents(of name: String, maximumBytes: Int) throws(SystemError) -> [UInt8]? {
        guard try names().contains(name) else { return nil }
        let file = try open(name, for: .reading)
        let size = try file.size()
        guard size <= UInt64(maximumBytes) else {
            throw SystemError(operation: "read", subject: file.path, code: EFBIG)
        }
        var writer = ByteWriter(capacity: Int(size) + 1)
        // SAFETY: `read` initialises as many bytes of the room as it says.
        _ = unsafe try writer.append(upTo: Int(size)) { room throws(SystemError) in
            unsafe try file.read(into: room, at: 0)
        }
        return writer.copied()
    }
}
