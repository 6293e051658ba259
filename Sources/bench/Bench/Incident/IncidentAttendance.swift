import Bytes
import Change

/// Ledger notes (who joined and who left) for the log of the benchmark `incident`. Most clients stay all the time; a
/// few leave and return each second. Twice a minute the ledger records the offset that all clients have reached.
struct IncidentAttendance: ~Copyable {
    static let clients = 5000
    private static let leavingAtOnce = 10
    /// Number of transactions per second: one in each millisecond.
    private static let transactionsOfSecond = 1000

    struct Notes: ~Copyable {
        var payload = ByteWriter()
        var keys: [UInt64] = []
    }

    /// Number of each client's socket.
    private var sessions = (0..<UInt64(clients)).map { $0 << 10 }
    private var next = 0

    /// Returns the ledger notes to write before a transaction; nil if there are none.
    mutating func notes(before number: Int, of all: Int, at offset: UInt64, _ time: Int64) -> Notes? {
        guard number % Self.transactionsOfSecond == 0 else { return nil }
        var notes: [LedgerNote] = []
        if number == 0 {
            for client in 0..<Self.clients { notes.append(note(.joined, client, offset, time)) }
        } else {
            for _ in 0..<Self.leavingAtOnce { comeAgain(offset, time, &notes) }
        }
        if number % (30 * Self.transactionsOfSecond) == 0 {
            notes.append(LedgerNote(.reached, time: time, session: 0, channel: 0, offset: offset))
        }
        var written = Notes()
        LedgerCodec.encode(notes, to: &written.payload)
        written.keys = Array(Set(notes.flatMap(\.keys)))
        return written
    }

    private mutating func comeAgain(_ offset: UInt64, _ time: Int64, _ notes: inout [LedgerNote]) {
        let client = next % Self.clients
        next += 1
        notes.append(note(.left, client, offset, time))
        sessions[client] += UInt64(Self.clients) << 10
        notes.append(note(.joined, client, offset, time))
    }

    private func note(_ event: LedgerNote.Event, _ client: Int, _ offset: UInt64, _ time: Int64) -> LedgerNote {
        var note = LedgerNote(
            event, time: time, session: sessions[client], channel: 1, offset: offset, received: offset)
        note.topic = Array("realtime:orders".utf8)
        note.role = Array("reader".utf8)
        note.subject = Array("user-\(client)".utf8)
        if event == .joined {
            note.bindings = Array(#"[{"event":"*","schema":"public","table":"orders"}]"#.utf8)
            note.claims = Array(#"{"role":"reader","sub":"user-\#(client)"}"#.utf8)
        }
        return note
    }
}
