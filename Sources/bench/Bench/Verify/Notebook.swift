import Synchronization

/// What clients wrote down, of all of them in the order of its time, for whoever judges it.
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

    /// Something that no ledger can know.
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
