import Auth
import Bytes
import Change
import Diagnostics
import Settings

/// Record of channel events in the log: joins with their claims and offset, refusals, reported losses, and the offset
/// that each channel had reached at its end.
public struct ChannelLedger: Sendable {
    let scope: LedgerScope
    /// Names of the claims that the ledger records with their values.
    private let claims: Set<String>
    /// Writes a note to the log. Returns false if the log has no room for it.
    let record: @Sendable (LedgerNote) -> Bool

    public init(
        _ scope: LedgerScope, claims: Set<String>, record: @escaping @Sendable (LedgerNote) -> Bool
    ) {
        self.scope = scope
        self.claims = claims
        self.record = record
    }

    func keeps(_ event: LedgerNote.Event) -> Bool {
        switch scope {
        case .full: true
        case .ranges: event != .delivered && event != .unrecorded
        case .exceptions: event == .refused || event == .told || event == .began || event == .missed
        case .nothing: false
        }
    }

    /// Claims that say nothing about the holder, so that not even their names are recorded.
    private static let formalities: Set<String> = ["aud", "exp", "iat", "iss", "jti", "nbf"]

    /// Returns those of a token's claims that the ledger records with their values, as JSON, and the names of the
    /// others.
    func kept(of all: RawSpan) -> (claims: [UInt8], others: [String]) {
        var kept = ByteWriter(capacity: 256)
        var others: [String] = []
        do throws(ByteError) {
            try copyKept(all, to: &kept, others: &others)
        } catch {
            // The claims were readable when the token was verified. If they are not now, none are recorded.
            return ([], ["all"])
        }
        return kept.count <= Limits.maximumLedgerTextBytes ? (kept.copied(), others) : ([], others + ["all"])
    }

    private func copyKept(
        _ all: RawSpan, to kept: inout ByteWriter, others: inout [String]
    ) throws(ByteError) {
        kept.append("{")
        var scanner = JSONScanner(all, maximumDepth: JSONScanner.deepest)
        guard try scanner.next() == .beginObject else { throw ByteError(expected: "an object", offset: 0) }
        while try scanner.next() == .name {
            let name = scanner.text
            let before = scanner.offset
            try scanner.skip(try scanner.next())
            guard claims.contains(name) else {
                if !Self.formalities.contains(name), others.count < 16 { others.append(name) }
                continue
            }
            if kept.count > 1 { kept.append(",") }
            JSONText.appendString(name, to: &kept)
            kept.append(":")
            kept.append(all.extracting(before..<scanner.offset))
        }
        kept.append("}")
    }
}

/// Record of what the ledger's notes say about one channel.
struct ChannelLedgerEntry {
    /// State of the loop when the channel's last note was written.
    struct Noted {
        /// Offset that the live follower had reached when the note was written.
        var at: UInt64
        /// Value of `MissedNotes.times` when the note was written. If it has increased since, the note must be
        /// repeated.
        var behindMisses: UInt32
    }

    /// Offset from which the ledger lists the channel as joined; nil if the ledger does not list it. The end is
    /// recorded only for listed channels.
    var since: UInt64?
    /// Index under which `LedgerRecorder` records deliveries to the channel; nil if they are not recorded.
    var seat: UInt32?
    /// State of the loop when the channel's last note was written; nil if the log had no room for a note.
    var noted: Noted?

    var isListed: Bool { since != nil }
}

/// Generator of the numbers by which the ledger identifies sockets. A number combines the microsecond of the first note
/// and the loop's number, so that it is unique even across restarts.
struct LedgerNumbers {
    /// Number of this loop, as ledger notes contain it.
    let loop: UInt64
    private var last: UInt64 = 0

    init(loop: Int) {
        precondition(loop >= 0 && UInt64(loop) <= LedgerNote.loopBits, "no two loops are noted as one")
        self.loop = UInt64(loop)
    }

    mutating func next(at microseconds: Int64) -> UInt64 {
        last = max(last + 1, UInt64(max(0, microseconds)))
        assert(last <= UInt64.max >> LedgerNote.loopBits.nonzeroBitCount, "the moment leaves room for the loop")
        return last << LedgerNote.loopBits.nonzeroBitCount | loop
    }
}
