import Foundation

/// One write that the server has not taken yet.
public struct PendingWrite: Sendable, Hashable, Codable {
    public enum Kind: String, Sendable, Codable {
        case insert
        case update
        case delete
    }

    /// The server is told it with the write, so that a repetition is none (an idempotency key).
    public let id: String
    public let table: String
    /// The row's key, as text.
    public let row: String
    public var kind: Kind
    /// The columns to be written.
    public var values: [String: JSONValue]
    /// The row that has to be there before, `table/key`, as a post before its comments.
    public let parent: String?
    /// Of several that wait only the newest is worth sending: a position on a map.
    public let newestOnly: Bool
    /// Seconds since 1970, when it was made.
    public let madeAt: Double
    public internal(set) var failures = 0
    var isOut = false
    var notBefore: Double = 0

    public init(
        id: String = UUID().uuidString, table: String, row: String, kind: Kind, values: [String: JSONValue] = [:],
        parent: String? = nil, newestOnly: Bool = false, madeAt: Date
    ) {
        self.id = id
        self.table = table
        self.row = row
        self.kind = kind
        self.values = values
        self.parent = parent
        self.newestOnly = newestOnly
        self.madeAt = madeAt.timeIntervalSince1970
    }

    public var name: String { table + "/" + row }

    /// Tried again when the one whose place it takes would have been: each new position is no reason to try at once.
    mutating func waits(as former: PendingWrite) {
        failures = former.failures
        notBefore = former.notBefore
    }
}

/// Writes that wait for the network: in order for each row, parents before children, few where few are enough. A pure machine;
/// `OfflineWrites` sends what it gives out.
public struct OfflineQueue: Sendable, Hashable, Codable {
    public struct Limits: Sendable, Hashable, Codable {
        public var writes = 1000
        public var bytes = 4 << 20
        public var age: Double = 7 * 86_400

        public init() {}
    }

    public enum Refusal: Error, Sendable, Hashable {
        case tooManyWrites
        case tooLarge
    }

    /// Why a write is not tried any more; what the app showed of it is to be taken back.
    public enum Loss: Sendable, Hashable {
        case refused(String)
        case tooOld
        /// What it needed before was lost.
        case parentLost
    }

    public private(set) var writes: [PendingWrite] = []
    private let limits: Limits

    public init(limits: Limits = Limits()) { self.limits = limits }

    public func hasUnsent(_ table: String, _ row: String) -> Bool { writes.contains { $0.name == table + "/" + row } }

    /// Joined with what waits for the same row and is not on its way: an update with an insert or update, a delete with all.
    public mutating func add(_ write: PendingWrite) throws(Refusal) {
        var write = write
        let before = writes
        let waiting = writes.lastIndex { $0.name == write.name && !$0.isOut }
        if let waiting, join(&write, into: waiting) { return }
        let refusal: Refusal? =
            if writes.count >= limits.writes {
                .tooManyWrites
            } else if bytes(of: writes) + bytes(of: [write]) > limits.bytes {
                .tooLarge
            } else {
                nil
            }
        if let refusal {
            // What it would have taken the place of is still to be sent.
            writes = before
            throw refusal
        }
        writes.append(write)
    }

    private mutating func join(_ write: inout PendingWrite, into index: Int) -> Bool {
        switch (writes[index].kind, write.kind) {
        case (.insert, .update), (.update, .update):
            writes[index].values.merge(write.values) { _, new in new }
            return true
        // The server has not heard of it, if nothing of it is on its way: there is nothing to delete.
        case (.insert, .delete) where writes[index].failures == 0:
            let name = write.name
            writes.removeAll { $0.name == name && !$0.isOut }
            return true
        case (.update, .delete):
            let name = write.name
            writes.removeAll { $0.name == name && !$0.isOut }
            return false
        case (.insert, .insert) where write.newestOnly:
            write.waits(as: writes.remove(at: index))
            return false
        default: return false
        }
    }

    private func bytes(of writes: [PendingWrite]) -> Int {
        writes.reduce(0) { $0 + JSONValue.object($1.values).json.utf8.count + $1.name.utf8.count }
    }

    /// Whoever comes later for the same row, or needs it, waits for the one before.
    private var free: [Int] {
        var blocked: Set<String> = []
        return writes.indices.filter { index in
            let write = writes[index]
            let isFree = !blocked.contains(write.name) && write.parent.map { !blocked.contains($0) } != false
            blocked.insert(write.name)
            return isFree && !write.isOut
        }
    }

    /// What may be sent now; it is on its way until one of the following says how it ended.
    public mutating func takeReady(at now: Date, atMost count: Int = 8) -> [PendingWrite] {
        let moment = now.timeIntervalSince1970
        let ready = free.filter { writes[$0].notBefore <= moment }.prefix(count)
        for index in ready { writes[index].isOut = true }
        return ready.map { writes[$0] }
    }

    public mutating func succeeded(_ id: String) { writes.removeAll { $0.id == id } }

    /// It is tried again, later each time.
    public mutating func failed(_ id: String, at now: Date, seed: UInt64) {
        guard let index = writes.firstIndex(where: { $0.id == id }) else { return }
        var chance = Chance(seed: seed)
        writes[index].isOut = false
        writes[index].failures += 1
        let delay = Backoff.delay(attempt: writes[index].failures, chance: &chance)
        writes[index].notBefore = now.timeIntervalSince1970 + delay / .seconds(1)
        giveWay(index)
    }

    /// What came while this one was on its way did not replace it then, and does now.
    private mutating func giveWay(_ index: Int) {
        let old = writes[index]
        let later = writes.indices.first { $0 > index && writes[$0].name == old.name }
        guard let later, old.kind == .insert, writes[later].kind == .insert, writes[later].newestOnly else { return }
        writes[later].waits(as: old)
        writes.remove(at: index)
    }

    /// The server does not want it: it is gone, and with it whatever needed it. Of each the app is told.
    public mutating func refused(_ id: String, _ reason: String) -> [(PendingWrite, Loss)] {
        guard let index = writes.firstIndex(where: { $0.id == id }) else { return [] }
        let write = writes.remove(at: index)
        guard write.kind == .insert else { return [(write, .refused(reason))] }
        return [(write, .refused(reason))] + dropChildren(of: write.name)
    }

    private mutating func dropChildren(of name: String) -> [(PendingWrite, Loss)] {
        var lost: [(PendingWrite, Loss)] = []
        var names = [name]
        while let parent = names.popLast() {
            for child in writes where child.parent == parent || child.name == parent {
                names.append(child.name)
                lost.append((child, .parentLost))
            }
            writes.removeAll { $0.parent == parent || $0.name == parent }
        }
        return lost
    }

    /// Those that nobody wants to make good any more.
    public mutating func dropOld(at now: Date) -> [(PendingWrite, Loss)] {
        let oldest = now.timeIntervalSince1970 - limits.age
        let old = writes.filter { $0.madeAt < oldest && !$0.isOut }
        writes.removeAll { write in old.contains { $0.id == write.id } }
        return old.map { ($0, .tooOld) } + old.filter { $0.kind == .insert }.flatMap { dropChildren(of: $0.name) }
    }

    /// After a launch nothing is on its way any more; what was may have arrived, which its id tells the server.
    public mutating func launched() {
        for index in writes.indices.reversed() where writes[index].isOut {
            writes[index].isOut = false
            giveWay(index)
        }
    }

    /// When something is due that waits for its time.
    public var nextMoment: Date? {
        free.map { writes[$0].notBefore }.min().map { Date(timeIntervalSince1970: $0) }
    }
}
