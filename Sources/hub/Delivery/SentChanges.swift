/// Which changes were sent to whom since that was taken, where it is recorded. Noting a delivery is an append to an array that
/// keeps its room: a loop's turn makes so many of them at most, and it is taken at the turn's end.
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

extension Pipeline {
    /// Of how many changes deliveries were recorded since they were taken.
    public var sentCount: Int { router.sent.changes.count }

    /// Gives each of those changes and the seats of whom it was sent to.
    public mutating func takeSent(_ visit: (_ offset: UInt64, _ seats: Span<UInt32>) -> Void) {
        var next = 0
        for (offset, count) in router.sent.changes {
            visit(offset, router.sent.seats.span.extracting(next..<next + count))
            next += count
        }
        router.sent.removeAll()
    }
}
