import Bytes
import Glibc
import Synchronization
import System

/// Directory in memory that fails in every way in which a disk can. Tests request the failures, and each run has the
/// same ones.
///
/// The directory keeps two states: the contents that the process sees, and those that a power cut would leave. `sync`
/// copies from the first to the second. `powerCut` chooses by its seed, page by page, which unsynced data survives.
public final class FaultyStorage: StorageDirectory {
    public static let pageBytes = 4096

    /// Failures of the next operations.
    public struct Faults: Sendable {
        /// Number of writes that succeed before one fails with the code; nil if none fails.
        public var failWriteAfter: Int?
        /// Number of syncs that succeed before one fails with the code; nil if none fails.
        public var failSyncAfter: Int?
        /// Number of opens for reading and directory listings that succeed before one fails; nil if none fails.
        public var failOpenAfter: Int?
        /// Number of reads of files and of their sizes that succeed before one fails; nil if none fails.
        public var failReadAfter: Int?
        public var code: Int32 = EIO
        /// Number of bytes that a failing write leaves behind.
        public var tornBytes = 0
        /// Largest sum of the bytes of all files.
        public var capacity: Int?
        /// Number of operations that fail, one after another.
        public var times = 1

        public init() {}
    }

    final class Content: Sendable {
        struct State: Sendable {
            var seen: [UInt8] = []
            var durable: [UInt8] = []
            var dirtyPages: Set<Int> = []
        }
        let state = Mutex(State())
    }

    private struct Shared {
        var seen: [String: Content] = [:]
        var durable: [String: Content] = [:]
        /// Changes of names since the last sync of the directory, in order.
        var pending: [NameChange] = []
        var faults = Faults()
        var writes = 0
        var syncs = 0
        var opens = 0
        var reads = 0
        var locked: Set<String> = []
    }

    private enum NameChange {
        case made(String, Content)
        case removed(String)
        case renamed(String, to: String)
    }

    private let shared = Mutex(Shared())
    public let path = "/memory"

    public init() {}

    // MARK: - Faults made by tests

    public func setFaults(_ change: (inout Faults) -> Void) {
        shared.withLock { shared in
            var faults = Faults()
            change(&faults)
            shared.faults = faults
        }
    }

    public var writeCount: Int { shared.withLock { $0.writes } }
    public var syncCount: Int { shared.withLock { $0.syncs } }
    public var openCount: Int { shared.withLock { $0.opens } }
    public var readCount: Int { shared.withLock { $0.reads } }

    /// Simulates the end of the process on a running machine: all its writes stay visible, and its locks are released.
    public func processDied() { shared.withLock { $0.locked = [] } }

    /// Simulates a power failure of the machine: chance decides which unsynced pages, sizes and names are kept.
    public func powerCut(_ random: inout SeededRandom) {
        var generator = random
        shared.withLock { shared in
            shared.locked = []
            shared.faults = Faults()
            let kept = Int.random(in: 0...shared.pending.count, using: &generator)
            for change in shared.pending.prefix(kept) { Self.apply(change, to: &shared.durable) }
            shared.pending = []
            // The order of files is fixed, so that a seed always has the same effect.
            for (_, content) in shared.durable.sorted(by: { $0.key < $1.key }) { Self.cut(content, &generator) }
            shared.seen = shared.durable
        }
        random = generator
    }

    private static func cut(_ content: Content, _ random: inout SeededRandom) {
        var generator = random
        content.state.withLock { state in
            var after = state.durable
            // The file system keeps the old size, the new size, or one between them.
            let sizes = [state.durable.count, state.seen.count, (state.durable.count + state.seen.count) / 2]
            let size = generator.pick(sizes)
            after.resize(to: size)
            // A cut keeps all pages, none or some: each case can reveal different mistakes.
            let share = generator.pick([0.0, 0.3, 0.5, 0.8, 1.0])
            for page in state.dirtyPages.sorted() where Double.random(in: 0..<1, using: &generator) < share {
                let start = page * pageBytes
                let end = min(start + pageBytes, state.seen.count, after.count)
                if start < end { after.replaceSubrange(start..<end, with: state.seen[start..<end]) }
            }
            state.seen = after
            state.durable = after
            state.dirtyPages = []
        }
        random = generator
    }

    public func bytes(of name: String) -> [UInt8]? {
        shared.withLock { $0.seen[name] }?.state.withLock { $0.seen }
    }

    /// Stores the bytes as the durable content of the file.
    public func setBytes(_ bytes: [UInt8], of name: String) {
        let content = Content()
        content.state.withLock { state in
            state.seen = bytes
            state.durable = bytes
        }
        shared.withLock { shared in
            shared.seen[name] = content
            shared.durable[name] = content
        }
    }

    public func delete(_ name: String) {
        shared.withLock { shared in
            shared.seen[name] = nil
            shared.durable[name] = nil
        }
    }

    public func deleteAll() {
        shared.withLock { shared in
            shared.seen = [:]
            shared.durable = [:]
            shared.pending = []
        }
    }

    public func flipBit(_ bit: Int, in name: String) {
        guard var bytes = bytes(of: name), bit / 8 < bytes.count else { return }
        bytes[bit / 8] ^= 1 << (bit % 8)
        setBytes(bytes, of: name)
    }

    /// Flips a bit on the disk. Readers that have the file open see the change, too.
    public func rot(_ bit: Int, of name: String) {
        shared.withLock { $0.seen[name] }?.state.withLock { state in
            for bytes in [\Content.State.seen, \Content.State.durable] where bit / 8 < state[keyPath: bytes].count {
                state[keyPath: bytes][bit / 8] ^= 1 << UInt8(bit % 8)
            }
        }
    }

    /// Returns another directory with the same files, all of them durable.
    public func copy() -> FaultyStorage {
        let other = FaultyStorage()
        for (name, content) in shared.withLock({ $0.seen }) {
            other.setBytes(content.state.withLock { $0.seen }, of: name)
        }
        return other
    }

    // MARK: - StorageDirectory

    private static func apply(_ change: NameChange, to names: inout [String: Content]) {
        switch change {
        case .made(let name, let content): names[name] = content
        case .removed(let name): names[name] = nil
        case .renamed(let name, let newName):
            names[newName] = names[name]
            names[name] = nil
        }
    }

    public func names() throws(SystemError) -> [String] {
        try countOpen(path)
        return shared.withLock { Array($0.seen.keys) }
    }

    public func open(_ name: String, for access: StorageAccess) throws(SystemError) -> any StorageFile {
        if access == .reading { try countOpen(name) }
        let content = shared.withLock { shared -> Content? in
            if let content = shared.seen[name] { return content }
            guard access == .creating else { return nil }
            let content = Content()
            shared.seen[name] = content
            shared.pending.append(.made(name, content))
            return content
        }
        guard let content else { throw SystemError(operation: "open", subject: name, code: ENOENT) }
        let file = FaultyFile(storage: self, name: name, content: content)
        if access == .creating { try file.truncate(to: 0) }
        return file
    }

    public func rename(_ name: String, to newName: String) throws(SystemError) {
        try change(.renamed(name, to: newName), name)
    }

    public func remove(_ name: String) throws(SystemError) { try change(.removed(name), name) }

    private func change(_ change: NameChange, _ name: String) throws(SystemError) {
        let isThere = shared.withLock { shared -> Bool in
            guard shared.seen[name] != nil else { return false }
            Self.apply(change, to: &shared.seen)
            shared.pending.append(change)
            return true
        }
        if !isThere { throw SystemError(operation: "change", subject: name, code: ENOENT) }
    }

    public func sync() throws(SystemError) {
        try countSync(path)
        shared.withLock { shared in
            for change in shared.pending { Self.apply(change, to: &shared.durable) }
            shared.pending = []
        }
    }

    public func freeBytes() throws(SystemError) -> UInt64 {
        let used = usedBytes
        return shared.withLock { UInt64(max(0, ($0.faults.capacity ?? 1 << 30) - used)) }
    }

    private final class Lock: StorageLock {
        let storage: FaultyStorage
        let name: String
        init(_ storage: FaultyStorage, _ name: String) { (self.storage, self.name) = (storage, name) }
        deinit { storage.shared.withLock { _ = $0.locked.remove(name) } }
    }

    public func lock(_ name: String) throws(SystemError) -> LockAttempt {
        let isMine = shared.withLock { $0.locked.insert(name).inserted }
        return isMine ? .taken(Lock(self, name)) : .heldElsewhere(processID: 42)
    }

    // MARK: - Faults

    private var usedBytes: Int {
        let contents = shared.withLock { Array($0.seen.values) }
        return contents.reduce(0) { $0 + $1.state.withLock { $0.seen.count } }
    }

    /// Number of bytes by which the files may still grow; nil without a limit.
    func room() -> Int? {
        guard let capacity = shared.withLock({ $0.faults.capacity }) else { return nil }
        return max(0, capacity - usedBytes)
    }

    /// Number of bytes that the next write leaves before it fails, or nil if it succeeds.
    func countWrite() -> (torn: Int, code: Int32)? {
        shared.withLock { shared in
            shared.writes += 1
            guard let left = shared.faults.failWriteAfter else { return nil }
            if left > 0 {
                shared.faults.failWriteAfter = left - 1
                return nil
            }
            shared.faults.times -= 1
            if shared.faults.times == 0 { shared.faults.failWriteAfter = nil }
            return (shared.faults.tornBytes, shared.faults.code)
        }
    }

    func countSync(_ subject: String) throws(SystemError) {
        try count("fdatasync", subject, \.syncs, \.failSyncAfter)
    }

    private func countOpen(_ subject: String) throws(SystemError) {
        try count("open", subject, \.opens, \.failOpenAfter)
    }

    func countRead(_ operation: String, _ subject: String) throws(SystemError) {
        try count(operation, subject, \.reads, \.failReadAfter)
    }

    private func count(
        _ operation: String, _ subject: String, _ counter: WritableKeyPath<Shared, Int>,
        _ countdown: WritableKeyPath<Faults, Int?>
    ) throws(SystemError) {
        let code = shared.withLock { shared -> Int32? in
            shared[keyPath: counter] += 1
            guard let left = shared.faults[keyPath: countdown] else { return nil }
            if left > 0 {
                shared.faults[keyPath: countdown] = left - 1
                return nil
            }
            shared.faults.times -= 1
            if shared.faults.times == 0 { shared.faults[keyPath: countdown] = nil }
            return shared.faults.code
        }
        if let code { throw SystemError(operation: operation, subject: subject, code: code) }
    }
}

final class FaultyFile: StorageFile {
    let path: String
    private let storage: FaultyStorage
    private let content: FaultyStorage.Content

    init(storage: FaultyStorage, name: String, content: FaultyStorage.Content) {
        self.storage = storage
        self.content = content
        path = storage.path + "/" + name
    }

    func read(into buffer: UnsafeMutableRawBufferPointer, at position: UInt64) throws(SystemError) -> Int {
        try storage.countRead("read", path)
        return content.state.withLock { state in
            let start = min(Int(position), state.seen.count)
            let count = min(buffer.count, state.seen.count - start)
            state.seen.withUnsafeBytes { seen in
                buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: seen[start..<start + count]))
            }
            return count
        }
    }

    func write(_ bytes: RawSpan, at position: UInt64) throws(SystemError) {
        let copied = bytes.copied()
        if let failure = storage.countWrite() {
            put(copied.prefix(failure.torn), at: Int(position))
            throw SystemError(operation: "write", subject: path, code: failure.code)
        }
        if let room = storage.room() {
            let growth = Int(position) + copied.count - seenBytes
            if growth > room {
                put(copied.prefix(max(0, copied.count - (growth - room))), at: Int(position))
                throw SystemError(operation: "write", subject: path, code: ENOSPC)
            }
        }
        put(copied[...], at: Int(position))
    }

    private func put(_ bytes: ArraySlice<UInt8>, at position: Int) {
        guard !bytes.isEmpty else { return }
        content.state.withLock { state in
            let end = position + bytes.count
            if state.seen.count < end { state.seen.resize(to: end) }
            state.seen.replaceSubrange(position..<end, with: bytes)
            state.dirtyPages.formUnion(position / FaultyStorage.pageBytes...(end - 1) / FaultyStorage.pageBytes)
        }
    }

    func sync() throws(SystemError) {
        do {
            try storage.countSync(path)
        } catch {
            // Like Linux: pages that a sync could not write count as written from then on. The process still sees them,
            // but a power cut removes them unless the process writes them again.
            content.state.withLock { $0.dirtyPages = [] }
            throw error
        }
        content.state.withLock { state in
            state.durable.resize(to: state.seen.count)
            for page in state.dirtyPages {
                let start = page * FaultyStorage.pageBytes
                let range = start..<max(start, min(start + FaultyStorage.pageBytes, state.seen.count))
                if !range.isEmpty { state.durable.replaceSubrange(range, with: state.seen[range]) }
            }
            state.dirtyPages = []
        }
    }

    func truncate(to size: UInt64) throws(SystemError) {
        content.state.withLock { $0.seen.resize(to: Int(size)) }
    }

    func reserve(_ size: UInt64) throws(SystemError) {
        let growth = Int(size) - seenBytes
        guard growth > 0 else { return }
        if let room = storage.room(), growth > room {
            throw SystemError(operation: "reserve", subject: path, code: ENOSPC)
        }
        content.state.withLock { $0.seen.resize(to: Int(size)) }
    }

    func size() throws(SystemError) -> UInt64 {
        try storage.countRead("stat", path)
        return UInt64(seenBytes)
    }

    private var seenBytes: Int { content.state.withLock { $0.seen.count } }
}

extension [UInt8] {
    fileprivate mutating func resize(to count: Int) {
        if count < self.count {
            removeSubrange(count...)
        } else {
            append(contentsOf: [UInt8](repeating: 0, count: count - self.count))
        }
    }
}
