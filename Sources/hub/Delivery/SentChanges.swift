/// Changes sent since the last `removeAll`, and their recipients, where deliveries are recorded. Noting a delivery
/// appends to an array that keeps its capacity. A loop takes the record at the end of its turn, which limits the number
/// of deliveries.
struct SentChanges {
    private(set) var seats: [UInt32] = []
    private(set) var changes: [(offset: UInt64, count: Int)] = []

    mutating func add(_ seat: UInt32, _ offset: UInt64) {
        guard seat != Recipient.unrecorded else { return }
        seats.append(seat)
        if let last = changes.indices.last, changes[last].offset == offset {
            changes[last].count += 1
        } else {
            changes.append((offset, 1))
        }
    }

    mutating func removeAll() {
        seats.removeAll(keepingCapacity: true)
        changes.removeAll(keepingCapacity: true)
    }
}

extension SentChanges {
    /// Calls `visit` with each recorded change and the seats of its recipients, and forgets them.
    mutating func take(_ visit: (_ offset: UInt64, _ seats: Span<UInt32>) -> Void) {
        var next = 0
        for (offset, count) in changes {
            visit(offset, seats.span.extracting(next..<next + count))
            next += count
        }
        removeAll()
    }
}
