import Bytes
import Change

/// Positions from which the log has every change of the tables that decide memberships (which rows a user may see).
/// Each table is noted with the way in which it is published.
///
/// The notes are a pure value; `MembershipRecord` stores them.
public struct MembershipNotes: Sendable, Equatable {
    /// Table in one of the two publications of the stream.
    public struct Entry: Sendable, Hashable {
        public var table: UInt32
        /// True if the table is in the hub's own publication; false if it is in the clients' publication.
        public var isOwn: Bool

        public init(table: UInt32, isOwn: Bool) {
            self.table = table
            self.isOwn = isOwn
        }
    }

    /// Text that describes how a table is published. It changes if the table leaves the publication and returns.
    public typealias Mark = String

    private struct Following: Sendable, Equatable {
        var mark: Mark
        var since: LSN
    }

    /// Publication of the hub in the stream: its OID, and the position from which the log has its changes.
    struct Publication: Sendable, Equatable {
        var number: UInt32
        var since: LSN
    }

    /// Publication of the hub in the stream; nil while the stream does not include it.
    var publication: Publication?
    private var followings: [Entry: Following] = [:]
    public private(set) var unknownPasts = UnknownPasts.none

    /// Notes of a new log, for which the hub has not followed any table yet.
    static let ofNewLog = MembershipNotes()
    /// Notes of a log for which nothing is known about followed tables.
    static let unknown = MembershipNotes(unknownPasts: UnknownPasts(knownFrom: nil))

    private init(unknownPasts: UnknownPasts = .none) { self.unknownPasts = unknownPasts }

    /// Returns notes for a program that reads a single point in time. In them, the tables have always been followed.
    public static func always(_ tables: [UInt32]) -> MembershipNotes {
        var notes = MembershipNotes()
        for table in tables {
            notes.followings[Entry(table: table, isOwn: false)] = Following(mark: "", since: .zero)
        }
        return notes
    }

    // MARK: Reading

    /// True if the log has every change of the entry's table, and the table is still published as `mark` says.
    public func follows(_ entry: Entry, _ mark: Mark) -> Bool { followings[entry]?.mark == mark }

    /// Position from which the log has every change, for each table by OID.
    public var tables: [UInt32: LSN] {
        var tables: [UInt32: LSN] = [:]
        for (entry, following) in followings {
            tables[entry.table] = min(tables[entry.table] ?? following.since, following.since)
        }
        return tables
    }

    // MARK: Changing

    /// Records which tables are published when the WAL ends at `position`. An entry is in `settled` if all transactions
    /// have ended that began before the table was published.
    public mutating func take(_ published: [Entry: Mark], settled: Set<Entry>, at position: LSN) {
        if unknownPasts.knownFrom == nil { unknownPasts.knownFrom = position }
        for (entry, following) in followings where !isKept(entry, following, published) {
            followings[entry] = nil
            unknownPasts.interrupt(entry.table, from: following.since, to: position)
        }
        for entry in settled where followings[entry] == nil {
            guard let following = published[entry].map({ Following(mark: $0, since: position) }),
                isKept(entry, following, published)
            else { continue }
            followings[entry] = following
        }
        assert(followings.count <= published.count, "only tables that are published now are followed")
    }

    /// True if the table is published in the same way as before. For a table in the hub's own publication, the stream
    /// must also have included that publication since it began to follow the table.
    private func isKept(_ entry: Entry, _ following: Following, _ published: [Entry: Mark]) -> Bool {
        guard published[entry] == following.mark else { return false }
        return !entry.isOwn || publication.map { following.since >= $0.since } ?? false
    }
}

/// Stored form of the notes: lines of text, then a checksum.
extension MembershipNotes {
    func encoded() -> ByteWriter {
        var text = ByteWriter(capacity: 256 + 64 * followings.count)
        text.append("version 1\n")
        if let knownFrom = unknownPasts.knownFrom { text.append("known \(knownFrom.rawValue)\n") }
        if let publication { text.append("publication \(publication.number) \(publication.since.rawValue)\n") }
        let entries = followings.sorted { ($0.key.table, $0.key.isOwn ? 1 : 0) < ($1.key.table, $1.key.isOwn ? 1 : 0) }
        for (entry, following) in entries {
            text.append(
                "table \(entry.table) \(entry.isOwn ? 1 : 0) \(following.since.rawValue) \(following.mark)\n")
        }
        for (table, range) in unknownPasts.interrupted.sorted(by: { $0.key < $1.key }) {
            text.append("interrupted \(table) \(range.lowerBound.rawValue) \(range.upperBound.rawValue)\n")
        }
        text.append("checksum \(String(CRC32C.of(text.bytes), radix: 16))\n")
        return text
    }

    /// Creates the notes from their stored form; nil if it is incomplete.
    init?(encoded bytes: RawSpan) {
        let lines = bytes.text.split(separator: "\n").map { $0.split(separator: " ") }
        guard lines.first == ["version", "1"], lines.last?.first == "checksum" else { return nil }
        self.init(unknownPasts: UnknownPasts(knownFrom: nil))
        for line in lines.dropFirst().dropLast() {
            let numbers = line.dropFirst().map { UInt64($0) }
            switch (line.first, numbers.count) {
            case ("known", 1): unknownPasts.knownFrom = numbers[0].map { LSN($0) }
            case ("publication", 2):
                guard let number = UInt32(line[1]), let since = numbers[1] else { return nil }
                publication = Publication(number: number, since: LSN(since))
            case ("table", 4):
                guard let table = UInt32(line[1]), let isOwn = numbers[1], let since = numbers[2] else { return nil }
                followings[Entry(table: table, isOwn: isOwn == 1)] = Following(mark: String(line[4]), since: LSN(since))
            case ("interrupted", 3):
                guard let table = UInt32(line[1]), let first = numbers[1], let last = numbers[2], first < last else {
                    return nil
                }
                unknownPasts.interrupted[table] = LSN(first)..<LSN(last)
            default: return nil
            }
        }
        // The comparison covers the whole text, including the checksum.
        guard encoded().copied() == bytes.copied() else { return nil }
    }
}
