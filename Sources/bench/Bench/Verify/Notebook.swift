import Synchronization

/// Notes of all clients, in the order of time, for the judge.
final class Notebook: Sendable {
    struct Entry: Sendable {
        var client: Int
        var at: UInt64
        var note: ClientLedger.Note
    }

    private let entries = Mutex<[Entry]>([])
    private let troubles = Mutex<[Finding]>([])

    func add(_ client: Int, _ at: UInt64, _ note: ClientLedger.Note) {
        entries.withLock { $0.append(Entry(client: client, at: at, note: note)) }
    }

    /// Adds a fault that no ledger can notice.
    func add(trouble kind: Finding.Kind, _ text: String, at: UInt64) {
        troubles.withLock { $0.append(Finding(kind: kind, text: text, at: at)) }
    }

    func takeEntries() -> [Entry] { take(entries) }

    func takeTroubles() -> [Finding] { take(troubles) }

    private func take<Element: Sendable>(_ list: borrowing Mutex<[Element]>) -> [Element] {
        list.withLock { list in
            defer { list = [] }
            return list
        }
    }
}
