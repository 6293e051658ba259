/// Record of sent changes and their recipients since the last `removeAll`, for channels with a seat (an index in the
/// record). The loop takes the record at the end of each turn, which limits its size. The arrays keep their capacity.
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
    /// Calls `visit` with each recorded change and the seats of its recipients, then forgets the record.
    mutating func take(_ visit: (_ offset: UInt64, _ seats: Span<UInt32>) -> Void) {
        var next = 0
        for (offset, count) in changes {
            visit(offset, seats.span.extracting(next..<next + count))
            next += count
        }
        removeAll()
    }
}
