import Foundation

/// Writes that wait to be sent: in order for each row, parents before children, and combined if possible. This type
/// only keeps the state; `OfflineWrites` sends the writes.
struct WriteQueue: Sendable, Hashable, Codable {
    private(set) var writes: [PendingWrite] = []
    private let limits: OfflineWrites.Limits

    init(limits: OfflineWrites.Limits = OfflineWrites.Limits()) { self.limits = limits }

    func hasUnsentWrite(table: String, row: String) -> Bool { writes.contains { $0.name == table + "/" + row } }

    /// Adds a write. Combines it with a waiting write of the same row that is not being sent. Throws if the queue is
    /// full.
    mutating func add(_ write: PendingWrite) throws(OfflineWrites.Refusal) {
        var write = write
        let before = writes
        let waiting = writes.lastIndex { $0.name == write.name && !$0.isOut }
        if let waiting, join(&write, into: waiting) { return }
        let refusal: OfflineWrites.Refusal? =
            if writes.count >= limits.maximumWrites {
                .tooManyWrites
            } else if bytes(of: writes) + bytes(of: [write]) > limits.maximumBytes {
                .tooLarge
            } else {
                nil
            }
        if let refusal {
            // The write that the refused one would have replaced must still be sent.
            writes = before
            throw refusal
        }
        writes.append(write)
    }

    /// Combines a write with a waiting write of the same row, at `index`. Returns false if the new write must be added
    /// after it.
    private mutating func join(_ write: inout PendingWrite, into index: Int) -> Bool {
        switch (writes[index].kind, write.kind) {
        case (.insert, .update), (.update, .update):
            writes[index].values.merge(write.values) { _, new in new }
            return true
        // No attempt to send the insert was made, so the server does not have the row. There is nothing to delete.
        case (.insert, .delete) where writes[index].failures == 0:
            let name = write.name
            writes.removeAll { $0.name == name && !$0.isOut }
            return true
        case (.update, .delete):
            let name = write.name
            writes.removeAll { $0.name == name && !$0.isOut }
            return false
        case (.insert, .insert) where write.isReplaceable:
            write.waits(as: writes.remove(at: index))
            return false
        default: return false
        }
    }

    private func bytes(of writes: [PendingWrite]) -> Int {
        writes.reduce(0) { $0 + JSONValue.object($1.values).json.utf8.count + $1.name.utf8.count }
    }

    /// Indexes of the writes that may be sent now. A write waits while an earlier write of the same row, or of its
    /// parent row, is in the queue.
    private var free: [Int] {
        var blocked: Set<String> = []
        return writes.indices.filter { index in
            let write = writes[index]
            let isFree = !blocked.contains(write.name) && write.parent.map { !blocked.contains($0) } != false
            blocked.insert(write.name)
            return isFree && !write.isOut
        }
    }

    /// Returns the writes that may be sent now. They count as being sent until the caller calls `succeeded`, `failed`
    /// or `refused`.
    mutating func takeReady(at now: Date, atMost count: Int = 8) -> [PendingWrite] {
        let moment = now.timeIntervalSince1970
        let ready = free.filter { writes[$0].notBefore <= moment }.prefix(count)
        for index in ready { writes[index].isOut = true }
        return ready.map { writes[$0] }
    }

    /// Removes a write that the server has accepted.
    mutating func succeeded(_ id: String) { writes.removeAll { $0.id == id } }

    /// Schedules a failed write for another attempt. The delay grows with each failure.
    mutating func failed(_ id: String, at now: Date, seed: UInt64) {
        guard let index = writes.firstIndex(where: { $0.id == id }) else { return }
        var chance = Chance(seed: seed)
        writes[index].isOut = false
        writes[index].failures += 1
        let delay = Backoff.delay(attempt: writes[index].failures, chance: &chance)
        writes[index].notBefore = now.timeIntervalSince1970 + delay / .seconds(1)
        removeIfReplaced(index)
    }

    /// Removes a write that a newer one replaces. The newer one was added while this one was being sent.
    private mutating func removeIfReplaced(_ index: Int) {
        let old = writes[index]
        let later = writes.indices.first { $0 > index && writes[$0].name == old.name }
        guard let later, old.kind == .insert, writes[later].kind == .insert, writes[later].isReplaceable else { return }
        writes[later].waits(as: old)
        writes.remove(at: index)
    }

    /// Removes a write that the server refused, and all writes that needed its row. Returns them with the reasons.
    mutating func refused(_ id: String, _ reason: String) -> [(PendingWrite, OfflineWrites.Loss)] {
        guard let index = writes.firstIndex(where: { $0.id == id }) else { return [] }
        let write = writes.remove(at: index)
        guard write.kind == .insert else { return [(write, .refused(reason))] }
        return [(write, .refused(reason))] + dropChildren(of: write.name)
    }

    /// Removes all writes of a row and of the rows that need it, because the row was not created. Returns them as lost.
    private mutating func dropChildren(of name: String) -> [(PendingWrite, OfflineWrites.Loss)] {
        var lost: [(PendingWrite, OfflineWrites.Loss)] = []
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

    /// Removes and returns writes that are older than the limit, and the writes that needed their rows.
    mutating func dropOld(at now: Date) -> [(PendingWrite, OfflineWrites.Loss)] {
        let oldest = now.timeIntervalSince1970 - limits.maximumSeconds
        let old = writes.filter { $0.madeAt < oldest && !$0.isOut }
        writes.removeAll { write in old.contains { $0.id == write.id } }
        return old.map { ($0, .tooOld) } + old.filter { $0.kind == .insert }.flatMap { dropChildren(of: $0.name) }
    }

    /// Resets the writes that were being sent when the app ended, so that they are sent again. The server may have
    /// received some of them; it recognizes a repeated write by its id.
    mutating func launched() {
        for index in writes.indices.reversed() where writes[index].isOut {
            writes[index].isOut = false
            removeIfReplaced(index)
        }
    }

    /// Earliest time at which a waiting write may be sent; nil if no write waits.
    var nextMoment: Date? {
        free.map { writes[$0].notBefore }.min().map { Date(timeIntervalSince1970: $0) }
    }
}
