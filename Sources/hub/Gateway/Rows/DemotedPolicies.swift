import Bytes
import Catalog
import Diagnostics
import Settings
import Synchronization
import System

/// Policies on which PostgreSQL once contradicted the hub's decision. PostgreSQL alone decides on them, also after a
/// restart.
///
/// A policy is identified by its role, its table and the text of its conditions. Another version of the program may
/// evaluate the policy correctly, so it begins with an empty record.
public final class DemotedPolicies: Sendable {
    private struct State {
        var keys: Set<UInt64> = []
        /// True if the record cannot be read, so that PostgreSQL decides on all policies.
        var isUnknown = false
        var isWritten = true

        /// True if PostgreSQL decides on all policies. This is also so if the record is full: then the hub must not
        /// trust a policy only because the record has no room for it.
        var holdsAll: Bool { isUnknown || keys.count >= Limits.maximumDemotedPolicies }
    }

    private let state: Mutex<State>
    /// Directory in which the record is stored; nil if it is kept in memory only.
    private let directory: (any StorageDirectory)?
    private let writer = BackgroundWriter("demoted")
    private let hasFailed = Atomic<Bool>(false)

    static let fileName = "demoted"
    private static let maximumBytes = UInt64(1 << 20)

    /// Creates a record in place of one whose directory cannot be opened. PostgreSQL then decides on all policies.
    public init(unreadable: Void) {
        directory = nil
        state = Mutex(State(isUnknown: true))
    }

    /// Restores the record of an earlier process. If it cannot be read, PostgreSQL decides on all policies.
    public init(in directory: (any StorageDirectory)?) {
        self.directory = directory
        var state = State()
        do {
            if let directory, let keys = try Self.read(directory) { state.keys = keys }
        } catch {
            state.isUnknown = true
            Log.shared.error(
                "cannot read which policies PostgreSQL has to decide: PostgreSQL decides all policies until you remove the file and restart the hub",
                [.path(Self.fileName), .error("\(error)")])
        }
        self.state = Mutex(state)
    }

    public func contains(_ policy: PolicyBinding) -> Bool {
        let (isEmpty, holdsAll) = state.withLock { ($0.keys.isEmpty, $0.holdsAll) }
        // The record is mostly empty, and this is called at each change of a membership.
        if isEmpty || holdsAll { return holdsAll }
        let key = Self.key(of: policy)
        return state.withLock { $0.keys.contains(key) }
    }

    /// Adds a policy to the record. Returns false if PostgreSQL already decides on it.
    func add(_ policy: PolicyBinding) -> Bool {
        let key = Self.key(of: policy)
        let isNews = state.withLock { state in
            guard !state.holdsAll, state.keys.insert(key).inserted else { return false }
            state.isWritten = false
            return true
        }
        if isNews { writer.wake() }
        return isNews
    }

    private static func key(of policy: PolicyBinding) -> UInt64 {
        var hash = KeyHash(seed: 0)
        for text in [policy.role, policy.row.type, policy.combinedSQL] {
            hash.combine(Array(text.utf8).rawBytes)
        }
        return hash.value
    }

    // MARK: The record

    public func start() throws(SystemError) {
        if directory != nil { try writer.start { [self] in flush() } }
    }

    public func stop() { writer.stop() }

    /// Writes the record if it has changed. Returns false if writing failed.
    @discardableResult
    func flush() -> Bool {
        guard let directory else { return true }
        let keys = state.withLock { state in
            defer { state.isWritten = true }
            return state.isWritten ? nil : state.keys
        }
        guard let keys else { return true }
        do throws(SystemError) {
            try directory.replace(Self.fileName, with: Self.encode(keys).rawBytes)
            hasFailed.store(false, ordering: .relaxed)
            return true
        } catch {
            state.withLock { $0.isWritten = false }
            if !hasFailed.exchange(true, ordering: .relaxed) {
                Log.shared.error(
                    "cannot store that PostgreSQL has to decide a policy; the hub tries again, but if it ends before, it decides the policy itself again",
                    [.path(Self.fileName), .error("\(error)")])
            }
            return false
        }
    }

    private static let version: UInt8 = 1

    static func encode(_ keys: Set<UInt64>, of program: String = Product.version) -> [UInt8] {
        var record = ByteWriter(capacity: 32 + keys.count * 8)
        record.append(version)
        record.append(little: UInt32(program.utf8.count))
        record.append(program)
        record.append(little: UInt32(keys.count))
        for key in keys.sorted() { record.append(little: key) }
        record.append(little: CRC32C.of(record.bytes))
        return record.copied()
    }

    private static func read(_ directory: any StorageDirectory) throws -> Set<UInt64>? {
        guard try directory.names().contains(fileName) else { return nil }
        let bytes = try directory.open(fileName, for: .reading).contents(atMost: maximumBytes)
        return try decode(bytes.rawBytes)
    }

    private static func decode(_ bytes: RawSpan) throws(ByteError) -> Set<UInt64>? {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == version else { throw ByteError(expected: "policies of version 1", offset: 0) }
        let program = try reader.span(Int(try reader.littleUInt32())).text
        var keys: Set<UInt64> = []
        for _ in 0..<(try reader.littleUInt32()) { keys.insert(try reader.littleUInt64()) }
        let end = reader.offset
        guard try reader.littleUInt32() == CRC32C.of(bytes.extracting(0..<end)) else {
            throw ByteError(expected: "the checksum of what precedes it", offset: end)
        }
        return program == Product.version ? keys : nil
    }
}
