import Bytes
import Synchronization
import System

/// Notes that the verifier's clients made of received messages, in the order of time. `DeliveryChecker` evaluates them.
final class Notebook: Sendable {
    struct Entry: Sendable {
        var client: Int
        var at: UInt64
        var note: ClientLedger.Note
    }

    private let entries = Mutex<[Entry]>([])
    /// All notes of the run, for the file `notes`; nil if the run's files are not kept.
    private let kept: Mutex<[Entry]>?
    private let troubles = Mutex<[Finding]>([])

    init(keepsAll: Bool = false) { kept = keepsAll ? Mutex([]) : nil }

    func add(_ client: Int, _ at: UInt64, _ note: ClientLedger.Note) {
        let entry = Entry(client: client, at: at, note: note)
        entries.withLock { $0.append(entry) }
        kept?.withLock { $0.append(entry) }
    }

    /// Writes the kept notes to the file `notes`, one on each line: seconds since the run began, the client, and the
    /// note. Writes nothing if the run's files are not kept.
    func write(into directory: DiskDirectory, since began: UInt64) throws(SystemError) {
        guard let lines = kept?.withLock({ $0.map { "\(Double($0.at - began) / 1e9) \($0.client) \($0.note)\n" } })
        else { return }
        try directory.open("notes", for: .creating).write(Array(lines.joined().utf8).rawBytes, at: 0)
    }

    /// Adds a fault of the hub that no `ClientLedger` can detect.
    func add(trouble kind: Finding.Kind, _ text: String, at: UInt64) {
        troubles.withLock { $0.append(Finding(kind: kind, text: text, at: at)) }
    }

    /// Removes and returns the notes that were not evaluated yet.
    func takeEntries() -> [Entry] { take(entries) }

    /// Removes and returns the faults that `add(trouble:_:at:)` added.
    func takeTroubles() -> [Finding] { take(troubles) }

    private func take<Element: Sendable>(_ list: borrowing Mutex<[Element]>) -> [Element] {
        list.withLock { list in
            defer { list = [] }
            return list
        }
    }
}
