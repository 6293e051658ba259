import Auth
import Bytes
import Change
import Diagnostics
import Settings

/// Record of channel events: joins with claims and offset, refusals, reported losses, and the offset reached at the
/// end.
public struct ChannelLedger: Sendable {
    let scope: LedgerScope
    /// Names of the claims that the ledger keeps.
    private let claims: Set<String>
    /// Function that records a note, and returns false if the log has no room for the note.
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

    /// Claims that say nothing about the holder. Their names are not listed.
    private static let formalities: Set<String> = ["aud", "exp", "iat", "iss", "jti", "nbf"]

    /// Returns the kept claims as the token has them, and the names of the other claims.
    func kept(of all: RawSpan) -> (claims: [UInt8], others: [String]) {
        var kept = ByteWriter(capacity: 256)
        var others: [String] = []
        do throws(ByteError) {
            try copyKept(all, to: &kept, others: &others)
        } catch {
            // The claims were readable when their token was verified. Claims that cannot be read again are not kept.
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

/// State of one channel in the ledger.
struct ChannelLedgerEntry {
    /// State at the channel's last ledger note.
    struct Noted {
        /// Offset of the log at that time.
        var at: UInt64
        /// Value of `MissedNotes.times` at that time.
        var behindMisses: UInt32
    }

    /// Offset from which the ledger lists the channel as joined; nil if the channel is not in the ledger. The end is
    /// recorded only for listed channels.
    var since: UInt64?
    /// Number under which deliveries to the channel are recorded; nil if they are not recorded.
    var seat: UInt32?
    /// State at the channel's last ledger note; nil if the ledger had no room for a note.
    var noted: Noted?

    var isListed: Bool { since != nil }
}

/// Source of the sockets' numbers in the ledger. A number combines the microsecond of the first note with the loop, so
/// numbers are unique even across runs.
struct LedgerNumbers {
    /// Number of the loop, as the notes contain it.
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
