import Auth
import Bytes
import Change
import Diagnostics
import Settings

/// Where it is written down what happens to channels: who joined what, as whom and from where in the log on, who was refused,
/// who was told of a loss, and how far each had come at its end.
public struct ChannelLedger: Sendable {
    let scope: LedgerScope
    /// The claims that are kept; no others are.
    private let claims: Set<String>
    /// False where the log has no room for it.
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

    /// What says nothing of its holder.
    private static let formalities: Set<String> = ["aud", "exp", "iat", "iss", "jti", "nbf"]

    /// Of a token's claims those that are kept, as they were sent, and the names of the others.
    func kept(of all: RawSpan) -> (claims: [UInt8], others: [String]) {
        var kept = ByteWriter(capacity: 256)
        var others: [String] = []
        do throws(ByteError) {
            try copyKept(all, to: &kept, others: &others)
        } catch {
            // They were read when their token was verified; what cannot be read again is not kept.
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

/// Gives sockets the numbers by which the ledger knows them: the microsecond of the first note, and the loop; no two are the
/// same, also not of different runs.
struct LedgerNumbers {
    /// As the notes have it.
    let loop: UInt64
    private var last: UInt64 = 0

    init(loop: Int) {
        precondition(loop >= 0 && UInt64(loop) <= LedgerNote.loopBits, "no two loops are noted as one")
        self.loop = UInt64(loop)
    }

    mutating func next(at microseconds: Int64) -> UInt64 {
        last = max(last + 1, UInt64(max(0, microseconds)))
        return last << LedgerNote.loopBits.nonzeroBitCount | loop
    }
}
