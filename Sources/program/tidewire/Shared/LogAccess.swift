import Change
import Console
import Diagnostics
import EventLog
import Glibc
import History
import Ingest
import Projects
import Settings
import System

/// Options that tell a command where the event log is.
extension Option {
    static let log = Option.value(
        "log", "DIR",
        "The log's own directory (the one with the .segment files), also a copy of it, or a bundle of 'tidewire bundle'."
    )
    static let project = Option.value(
        "project", "NAME", "The log of this project, if the hub of the data directory serves several projects.")
}

extension OptionGroup {
    /// Options for commands that need nothing but the log.
    static let dataDirectory = OptionGroup.configuration(of: [Setting(\.dataDirectory), Setting(\.maskRules)])
}

extension Arguments {
    /// Returns the directory of the event log, as given or configured.
    func logDirectory(_ terminal: Terminal) throws -> String {
        if let path = value(of: .log) {
            guard !path.isEmpty else { throw UsageError("--log: expected a directory") }
            guard value(of: .project) == nil else {
                throw UsageError(
                    "--project selects a log in a data directory; --log names a log itself: give one of them")
            }
            return path
        }
        return IngestService.Settings.logDirectory(try dataDirectory(terminal))
    }

    private func dataDirectory(_ terminal: Terminal) throws -> String {
        let configuration = try configuration(terminal)
        guard let name = value(of: .project) else { return configuration.dataDirectory }
        do throws(ProjectStoreError) {
            return try ProjectPlace.directory(of: name, configuration)
        } catch {
            throw CommandFailure(.notFound, "\(error)", hint: "Is the name right, and is --data-dir the hub's?")
        }
    }

    /// Opens the log or bundle for reading. It takes no lock, so a hub may run at the same time. Reads mask the values
    /// that the mask rules name. If `--unmask` shows some, the function records that in the audit file first.
    func historyLog(_ terminal: Terminal) throws -> HistoryLog {
        let path = try logDirectory(terminal)
        let bundle = try LogAccess.bundle(at: path)
        let directory = try bundle?.directory ?? LogAccess.openDirectory(path)
        let masking = try masking(terminal, ofLog: directory)
        if let bundle { try check(masking.shown, areIn: bundle) }
        if !masking.shown.isEmpty { try audit(masking.shown, ofLog: path, terminal) }
        return HistoryLog(directory: directory, masking: masking, lost: bundle?.masking)
    }
}

extension Arguments {
    /// Throws if `--unmask` names columns whose values are not in the bundle, because they were masked when it was
    /// made.
    func check(_ shown: [ColumnMask], areIn bundle: LogBundle) throws {
        guard !shown.isEmpty else { return }
        let relations = try HistoryLog(bundle, masking: .nothing).relations()
        for mask in shown {
            guard let lost = bundle.masking.columns(lostFor: mask, among: relations) else { continue }
            let names = lost.isEmpty ? "" : " (\(lost.joined(separator: ", ")))"
            throw UsageError(
                "--unmask \(mask): this bundle has only marks for these values\(names); a bundle made with --unmask has the values"
            )
        }
    }
}

extension Masking {
    /// Returns the columns that the user asked to unmask but whose values this masking (that of a bundle) removed. Nil
    /// if it removed none. The list is empty if the lost values have no column: those under a name inside JSON, or all
    /// values.
    fileprivate func columns(lostFor asked: ColumnMask, among relations: [RecordedRelation]) -> [String]? {
        if asked.isEverything { return shown.isEmpty ? [] : nil }
        var (isColumn, lost): (Bool, Set<String>) = (false, [])
        for relation in relations {
            let names = relations.filter { $0.relation.oid == relation.relation.oid }.map(\.table)
            for column in relation.relation.columns where asked.covers(column.name, of: relation.table) {
                isColumn = true
                if masks(column.name, of: names) { lost.insert("\(relation.table).\(SQLName.quoted(column.name))") }
            }
        }
        if !lost.isEmpty { return lost.sorted() }
        // A name that is no column of the bundle's tables may be one inside JSON, if the bundle has its values.
        return isColumn || shown.contains { $0.isEverything || $0.column == asked.column } ? nil : []
    }
}

enum LogAccess {
    static let exitCodes: [ExitCode] = [.notFound, .outsideRetention, .unreachable, .damaged]

    /// Opens a log's directory, or the log inside a bundle.
    static func open(_ path: String) throws -> any StorageDirectory {
        try bundle(at: path)?.directory ?? openDirectory(path)
    }

    /// Opens the bundle at the path. Nil if the path is not a file, but a directory or missing.
    static func bundle(at path: String) throws -> LogBundle? {
        guard Directories.isThere(path), !Directories.isDirectory(path) else { return nil }
        return try bundle(path)
    }

    /// Opens a bundle. Turns errors into messages with exit codes.
    static func bundle(_ path: String) throws -> LogBundle {
        do {
            return try LogBundle(path)
        } catch let error as BundleError {
            throw CommandFailure(
                .unreachable, "\(error)", hint: "Was the file copied completely? 'tidewire open FILE' checks a bundle.")
        } catch let error as MaskRulesFailure {
            throw CommandFailure(.unreachable, "\(error)", hint: "Ask for the bundle again.")
        } catch {
            throw CommandFailure(
                .unreachable, "cannot read the bundle: \(error)",
                hint: "May you read the file, and was it copied completely?")
        }
    }

    /// Opens a log's directory. Commands that write to the log use it too. Turns errors into messages with exit codes.
    static func openDirectory(_ path: String) throws -> DiskDirectory {
        do throws(SystemError) {
            return try DiskDirectory(path)
        } catch {
            if error.code == ENOENT { throw missing(path) }
            throw CommandFailure(.unreachable, "cannot read the event log: \(error)", hint: error.advice)
        }
    }

    static let adviceAboutHub =
        "Does the hub run, and are the address and its port right? Its log and 'GET /ready' say more."

    /// Returns the error for a path without an event log.
    static func missing(_ path: String) -> CommandFailure {
        CommandFailure(
            .unreachable, "there is no event log in \(path)",
            hint: "Name the hub's data directory with --data-dir, or a log directory with --log; "
                + "`tidewire serve` creates a log when it first reaches its database.")
    }

    /// Runs a body that reads the log, and turns its errors into messages with exit codes.
    static func explained<T: ~Copyable>(_ body: () throws -> T) throws -> T {
        do {
            return try body()
        } catch let error as EventLogError {
            throw failure(error)
        } catch let error as EventLogFailure {
            throw failure(.failure(error))
        } catch let error as HistoryError {
            throw failure(error)
        } catch let error as UnreadableEntry {
            throw CommandFailure(.damaged, "\(error)", hint: "Was it written by a newer version of tidewire?")
        }
    }

    /// Verifies the checksums of all segments, and shows the progress. Returns a report for each segment.
    static func verified(
        _ directory: any StorageDirectory, _ progress: Progress,
        look: (UInt64, EntryKind, RawSpan) -> Void = { _, _, _ in }
    ) throws -> [SegmentReport] {
        defer { progress.clear() }
        var (done, offset) = ("", UInt64(0))
        func note() { progress.note("reading checksums of \(directory.path): @\(offset)\(done)") }
        return try EventLogVerifier.verify(directory) { segment, entry, payload in
            offset = entry.offset
            note()
            look(segment, entry.kind, payload)
        } progress: { finished, all in
            done = ", \(finished) of \(all) segments"
            note()
        }
    }

    static func failure(_ error: EventLogError) -> CommandFailure {
        switch error {
        case .missing(let path): missing(path)
        case .damaged: CommandFailure(.damaged, "\(error)", hint: error.advice)
        case .failure, .lockedElsewhere, .foreignSource:
            CommandFailure(.unreachable, "\(error)", hint: error.advice)
        case .outsideRetention(let oldest):
            CommandFailure(
                .outsideRetention, "retention has deleted these entries; the oldest kept is @\(oldest)",
                hint: "--from @\(oldest) or --from oldest shows what is left.")
        }
    }

    private static func failure(_ error: HistoryError) -> CommandFailure {
        switch error {
        case .noTransaction(let xid):
            CommandFailure(
                .notFound, "the log has no transaction \(xid)",
                hint:
                    "It may be too old, not committed yet, or without changes of published tables: 'tidewire tail' shows xids."
            )
        case .outsideRetention(_, let oldest, let time):
            CommandFailure(
                .outsideRetention,
                "the log does not go back so far: retention has deleted everything older; "
                    + "the oldest kept is @\(oldest), of \(TimeText.write(time, digits: 3))Z",
                hint: "--from @\(oldest) or --from oldest shows what is left.")
        }
    }
}
