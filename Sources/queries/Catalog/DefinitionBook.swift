import Bytes
import Change
import Diagnostics
import System

/// Row of PostgreSQL's catalog on which the meaning of stored values depends.
enum Definition: Hashable {
    /// A column, including a dropped one. PostgreSQL never reuses its number.
    case column(table: UInt32, number: Int)
    /// A label of an enumeration. The number is the label's oid.
    case label(UInt32)
    /// Membership of the table in the publication.
    case publication(table: UInt32)
}

/// Book of definitions with the LSN after which each is known to be unchanged.
///
/// A name in the event log has the catalog's present meaning only after that LSN. The book is stored in a file that
/// later processes read. A definition that the file lacks, or has in another version, counts from the reading that
/// found it. The catalog's thread owns the book.
final class DefinitionBook {
    /// Moment at which the hub read the definitions.
    struct Reading {
        /// LSN before which every transaction that the reading saw had committed.
        var position: LSN
        /// Number of the oldest transaction that was still running. All transactions with lower numbers had ended.
        var firstRunning: UInt64
        /// Lowest transaction number that was not yet assigned.
        var firstUnassigned: UInt64
    }

    private struct Entry: Equatable {
        var version: String
        /// LSN after which the version applies; nil while a running transaction may have used the version before it.
        var since: LSN?
        /// Lowest number of a transaction that cannot have used the version before; nil if another process found this
        /// version.
        var firstUnassigned: UInt64?
    }

    private var entries: [Definition: Entry] = [:]
    /// Definitions found by the current reading.
    private var seen: Set<Definition> = []
    /// Entries that the file has.
    private var written: [Definition: Entry] = [:]
    /// LSN of the last reading at which the book discarded entries of tables that had left the publication. If such a
    /// table returns to the publication, its entry begins at this LSN.
    private var forgotten = LSN.zero
    /// Highest LSN of a reading.
    private var position = LSN.zero
    /// LSN after which the book knows definitions; nil until the first reading.
    private var begin: LSN?
    /// Definitions that are not certain yet, because a running transaction may have used the version before.
    private var waiting: Set<Definition> = []
    private let openDirectory: (@Sendable () throws(SystemError) -> any StorageDirectory)?
    private var hasFailed = false

    /// True while a running transaction prevents a definition from being certain.
    var isWaiting: Bool { !waiting.isEmpty }

    init(_ openDirectory: (@Sendable () throws(SystemError) -> any StorageDirectory)? = nil) {
        self.openDirectory = openDirectory
        guard let openDirectory else { return }
        do {
            try read(openDirectory())
        } catch {
            Log.shared.warning(
                "cannot read past table definitions: older changes come without columns and enum labels that may have had other names",
                [.path(Self.fileName), .error("\(error)")])
            entries = [:]
        }
    }

    // MARK: Readings

    /// Returns the LSN after which the book knows definitions. The first call sets it.
    ///
    /// - Parameter position: the LSN at which a new book begins.
    func beginning(at position: LSN) -> LSN {
        let known = begin ?? position
        begin = known
        return known
    }

    /// Begins a reading of all definitions. `finishReading` ends it.
    func beginReading() {
        seen = []
        waiting = []
    }

    /// Returns the LSN after which the column is unchanged. ALTER TABLE waits until no transaction uses the table, so
    /// every transaction that uses the table later sees the new column.
    ///
    /// - Parameter finishedBefore: the LSN up to which the replication slot has sent everything. It is set only if the
    ///   version is older than all transactions that the slot has not sent.
    func sinceOfColumn(
        _ definition: Definition, version: String, finishedBefore: LSN?, _ reading: Reading
    ) -> LSN {
        note(definition, version, reading) { finishedBefore.map { min($0, reading.position) } ?? reading.position }
    }

    /// Returns the LSN after which the label or publication is unchanged. Transactions that ran during the change may
    /// have used the earlier version. While one of them may still run, the result is `never`.
    func sinceOfOther(
        _ definition: Definition, version: String, finishedBefore: LSN?, _ reading: Reading
    ) -> LSN {
        let known = note(definition, version, reading) { finishedBefore }
        if known != .never { return known }
        let first = entries[definition]?.firstUnassigned ?? reading.firstUnassigned
        let isOver = reading.firstRunning >= first
        entries[definition]?.firstUnassigned = first
        entries[definition]?.since = isOver ? reading.position : nil
        if !isOver { waiting.insert(definition) }
        return isOver ? reading.position : .never
    }

    /// Returns the LSN after which the table's publication is unchanged. For a table that is seen for the first time,
    /// the LSN is the lowest possible, because the log has no earlier changes of it.
    func sinceOfPublication(of table: UInt32, version: String, _ reading: Reading) -> LSN {
        let definition = Definition.publication(table: table)
        return sinceOfOther(
            definition, version: version, finishedBefore: entries[definition] == nil ? forgotten : nil, reading)
    }

    /// Records that the reading found this version. Returns the LSN from which it counts, or `never`. `since` gives the
    /// LSN for a new version.
    private func note(
        _ definition: Definition, _ version: String, _ reading: Reading, _ since: () -> LSN?
    ) -> LSN {
        seen.insert(definition)
        position = max(position, reading.position)
        if let known = entries[definition], known.version == version { return known.since ?? .never }
        let entry = Entry(version: version, since: since())
        entries[definition] = entry
        return entry.since ?? .never
    }

    /// Ends the reading and stores the book. Discards definitions that the reading did not find. Entries of tables that
    /// left the publication are kept up to a limit, because the tables may return.
    func finishReading() {
        let absent = entries.keys.filter { !seen.contains($0) }
        let publications = absent.filter { if case .publication = $0 { true } else { false } }
        let isTooMuch = publications.count > max(1024, seen.count)
        if isTooMuch { forgotten = position }
        for definition in absent {
            if case .publication = definition, !isTooMuch { continue }
            entries[definition] = nil
        }
        write()
    }

    // MARK: The file

    static let fileName = "definitions"
    private static let maximumBytes: UInt64 = 64 << 20

    private func write() {
        guard let openDirectory, entries != written else { return }
        do {
            let directory = try openDirectory()
            try directory.replace(Self.fileName, with: encoded().bytes)
            written = entries
            hasFailed = false
        } catch {
            if !hasFailed {
                Log.shared.warning(
                    "cannot store past table definitions",
                    [.path(Self.fileName), .error("\(error)")])
            }
            hasFailed = true
        }
    }

    /// Returns the content of the file: lines of text, the last of which is a checksum.
    private func encoded() -> ByteWriter {
        var text = ByteWriter(capacity: 64 * entries.count + 64)
        text.append("forgotten 0 0 \(forgotten.rawValue) -\n")
        text.append("begin 0 0 \(begin?.rawValue ?? 0) -\n")
        for (definition, entry) in entries {
            // A definition that is not certain for this process is not certain for the next one either.
            let since = entry.since.map { String($0.rawValue) } ?? "?"
            switch definition {
            case .column(let table, let number): text.append("column \(table) \(number) \(since) \(entry.version)\n")
            case .label(let label): text.append("label \(label) 0 \(since) \(entry.version)\n")
            case .publication(let table): text.append("publication \(table) 0 \(since) \(entry.version)\n")
            }
        }
        text.append("checksum \(String(CRC32C.of(text.bytes), radix: 16))\n")
        return text
    }

    private func read(_ directory: any StorageDirectory) throws {
        guard try directory.names().contains(Self.fileName) else { return }
        let bytes = try directory.open(Self.fileName, for: .reading).contents(atMost: Self.maximumBytes)
        var text = ByteWriter(capacity: bytes.count)
        text.append(bytes)
        let lines = text.bytes.text.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.count > 1, lines.last == "", let checksum = lines[lines.count - 2].split(separator: " ").last else {
            throw ByteError(expected: "definitions with a checksum", offset: 0)
        }
        var body = ByteWriter(capacity: bytes.count)
        for line in lines.dropLast(2) { body.append("\(line)\n") }
        guard String(CRC32C.of(body.bytes), radix: 16) == checksum else {
            throw ByteError(expected: "the checksum of what precedes it", offset: body.count)
        }
        for line in lines.dropLast(2) { try take(line.split(separator: " ", maxSplits: 4)) }
        written = entries
    }

    private func take(_ words: [Substring]) throws(ByteError) {
        guard words.count == 5, let object = UInt32(words[1]), let number = Int(words[2]) else {
            throw ByteError(expected: "a definition of five words", offset: 0)
        }
        let entry = Entry(version: String(words[4]), since: UInt64(words[3]).map { LSN($0) })
        switch words[0] {
        case "forgotten": forgotten = entry.since ?? .zero
        case "begin": begin = entry.since
        case "column": entries[.column(table: object, number: number)] = entry
        case "label": entries[.label(object)] = entry
        case "publication": entries[.publication(table: object)] = entry
        default: throw ByteError(expected: "a known definition", offset: 0)
        }
    }
}

extension LSN {
    /// Position after all others. It stands for a definition that applies to no row yet.
    static let never = LSN(.max)
}
