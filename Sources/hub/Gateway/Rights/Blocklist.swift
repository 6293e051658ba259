import Auth
import Bytes
import Diagnostics
import Synchronization
import System

/// Clients that an operator disconnects or blocks.
public enum CutOffTarget: Sendable, Hashable {
    /// All clients of a user: the value of the claim `sub`.
    case user(String)
    /// All clients of a login: the value of Supabase Auth's claim `session_id`.
    case login(String)
    /// One socket, by its session number in the ledger.
    case socket(UInt64)

    /// Name of the kind of target in the API: `user`, `login` or `session`.
    public var kind: String {
        switch self {
        case .user: "user"
        case .login: "login"
        case .socket: "session"
        }
    }

    public var name: String {
        switch self {
        case .user(let name), .login(let name): name
        case .socket(let number): Hex.text(number)
        }
    }

    /// True if the target includes a client whose token has these claims.
    func fits(_ claims: Claims) -> Bool {
        switch self {
        case .user(let name): claims.subject.equals(Array(name.utf8).rawBytes)
        case .login(let name): claims.sessionID == name
        case .socket: false
        }
    }
}

/// Users and logins that operators have blocked for a time, kept across restarts. The hub refuses all their tokens.
///
/// A block is removed only when its time ends or an operator ends it; a full list refuses new blocks. A file that
/// cannot be read is an error, because it would be unknown who is blocked.
public final class Blocklist: Sendable {
    public struct Block: Sendable, Equatable {
        public let target: CutOffTarget
        /// End of the block in Unix seconds.
        public let until: Int64
        /// Name of the operator who made the block.
        public let by: String
        /// Reason in the operator's own words; may be empty.
        public let reason: String

        public init(_ target: CutOffTarget, until: Int64, by: String, reason: String) {
            (self.target, self.until, self.by, self.reason) = (target, until, by, reason)
        }
    }

    /// Reason why a block was not added, or is not stored.
    public enum Failure: Error, Equatable {
        case full
        /// The block is in effect, but a restart of the hub would end it.
        case unwritten(String)
    }

    public static let maximumBlocks = 10_000
    public static let longestBlock = Duration.seconds(366 * 86_400)
    static let fileName = "blocked"
    private static let maximumBytes = UInt64(64 << 20)

    private let blocks: Mutex<[CutOffTarget: Block]>
    /// Number of blocks, read without the lock. It is nearly always zero when a token is verified.
    private let count = Atomic<Int>(0)
    /// Lock for writing the file, so that the disk never gets an older list after a newer one.
    private let writing = Mutex<Void>(())
    /// Directory of the file; nil if the list is kept in memory only.
    private let directory: (any StorageDirectory)?

    /// Reads the list that an earlier process of the hub wrote.
    public init(in directory: (any StorageDirectory)?) throws {
        self.directory = directory
        let known = try directory.map { try Self.read($0) } ?? [:]
        blocks = Mutex(known)
        count.store(known.count, ordering: .releasing)
    }

    /// Creates a list that is kept in memory only.
    public init() {
        directory = nil
        blocks = Mutex([:])
    }

    // MARK: What is blocked

    /// Returns the end, in Unix seconds, of the block for the user or login in these claims; nil if there is none.
    func end(for claims: Claims, at now: Int64) -> Int64? {
        guard count.load(ordering: .acquiring) > 0 else { return nil }
        return blocks.withLock { blocks in
            var targets = [CutOffTarget.user(claims.subject.text)]
            if let login = claims.sessionID { targets.append(.login(login)) }
            return targets.compactMap { blocks[$0]?.until }.filter { $0 > now }.max()
        }
    }

    /// Returns the blocks that have not ended, sorted by their ends, the earliest first.
    public func current(at now: Int64) -> [Block] {
        forgetEnded(at: now)
        return blocks.withLock { Array($0.values) }.filter { $0.until > now }
            .sorted { ($0.until, $0.target.name) < ($1.until, $1.target.name) }
    }

    // MARK: Changes

    /// Blocks the target. The hub refuses the target's tokens that it receives afterwards. The block is on the disk
    /// when this method returns.
    public func add(_ block: Block, at now: Int64) throws(Failure) {
        if case .socket = block.target { preconditionFailure("a socket ends, so it cannot be blocked") }
        forgetEnded(at: now)
        let isTaken = blocks.withLock { blocks in
            guard blocks[block.target] != nil || blocks.count < Self.maximumBlocks else { return false }
            blocks[block.target] = block
            count.store(blocks.count, ordering: .releasing)
            return true
        }
        guard isTaken else { throw .full }
        try write()
    }

    /// Ends a block. Returns false if there is none for the target.
    public func remove(_ target: CutOffTarget, at now: Int64) throws(Failure) -> Bool {
        let removed = blocks.withLock { blocks in
            defer { count.store(blocks.count, ordering: .releasing) }
            return blocks.removeValue(forKey: target)
        }
        guard let removed else { return false }
        try write()
        return removed.until > now
    }

    /// Removes the blocks whose end has passed, and logs that.
    private func forgetEnded(at now: Int64) {
        let ended = blocks.withLock { blocks in
            let ended = blocks.values.count { $0.until <= now }
            if ended > 0 { blocks = blocks.filter { $0.value.until > now } }
            count.store(blocks.count, ordering: .releasing)
            return ended
        }
        if ended > 0 { Log.shared.info("blocks of operators have ended, and are forgotten", [.count(UInt64(ended))]) }
    }

    // MARK: The record

    private func write() throws(Failure) {
        guard let directory else { return }
        let failure = writing.withLock { _ in
            let blocks = blocks.withLock { Array($0.values) }
            do throws(SystemError) {
                try directory.replace(Self.fileName, with: Self.encode(blocks).rawBytes)
                return String?.none
            } catch {
                return "\(error)"
            }
        }
        guard let failure else { return }
        Log.shared.error(
            "cannot store whom operators have blocked: the blocks hold until the hub restarts",
            [.path(Self.fileName), .error(failure)])
        throw .unwritten(failure)
    }

    private static let version: UInt8 = 1

    static func encode(_ blocks: [Block]) -> [UInt8] {
        var record = ByteWriter(capacity: 16 + blocks.count * 64)
        record.append(version)
        record.append(little: UInt32(blocks.count))
        for block in blocks {
            record.append(block.target.kind == "user" ? UInt8(0) : 1)
            record.append(little: UInt64(bitPattern: block.until))
            for text in [block.target.name, block.by, block.reason] {
                record.append(little: UInt32(text.utf8.count))
                record.append(text)
            }
        }
        record.append(little: CRC32C.of(record.bytes))
        return record.copied()
    }

    private static func read(_ directory: any StorageDirectory) throws -> [CutOffTarget: Block] {
        guard try directory.names().contains(fileName) else { return [:] }
        let bytes = try directory.open(fileName, for: .reading).contents(atMost: maximumBytes)
        return try decode(bytes.rawBytes)
    }

    static func decode(_ bytes: RawSpan) throws(ByteError) -> [CutOffTarget: Block] {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == version else { throw ByteError(expected: "blocks of version 1", offset: 0) }
        var blocks: [CutOffTarget: Block] = [:]
        for _ in 0..<(try reader.littleUInt32()) {
            let kind = try reader.uint8()
            let until = Int64(bitPattern: try reader.littleUInt64())
            var texts: [String] = []
            for _ in 0..<3 { texts.append(try reader.span(Int(try reader.littleUInt32())).text) }
            let target = kind == 0 ? CutOffTarget.user(texts[0]) : .login(texts[0])
            blocks[target] = Block(target, until: until, by: texts[1], reason: texts[2])
        }
        let end = reader.offset
        guard try reader.littleUInt32() == CRC32C.of(bytes.extracting(0..<end)) else {
            throw ByteError(expected: "the checksum of what precedes it", offset: end)
        }
        return blocks
    }
}
