import Console
import Crypto
import EventLog
import History
import Settings
import System

/// Options that hide values, or show masked values.
extension Option {
    static let mask = Option.value(
        "mask", "COLUMN", isRepeatable: true,
        "Hide this column's values too: diagnosis, users.diagnosis or public.users.diagnosis. NULL stays visible.")
    static let unmask = Option.value(
        "unmask", "COLUMN", isRepeatable: true,
        "Show this column's values although rules mask it, also inside JSON; * is all columns. The log's audit file "
            + "records first who did so.")
    static let auditFile = Option.value(
        "audit-file", "FILE", "The file that records --unmask, instead of the file audit in the log's directory.")

    static let maskKey = Option.value(
        "mask-key", "FILE",
        "Masks equal values alike in every run with this key file (16 bytes or more), for a seed and the replays on it."
    )

    static let unmaskReason = Option.value(
        "because", "TEXT", "The reason for --unmask, for the audit file. With --server it is needed.")

    static let masking: [Option] = [.mask, .unmask, .unmaskReason, .auditFile]
}

enum MaskHelp {
    /// Help for the DESCRIPTION of commands that show values.
    static let text = """
        MASKS. The output hides values of columns with well-known names (email, password, token, phone, address and \
        others), and of columns that a file of the setting mask_rules names: the hub's file, which lies in the log's \
        directory and in bundles, or your own in addition. It also hides values with such names inside JSON. A mark \
        such as *** 1f3a90c2 stands in their place, the same for equal values within one output. --unmask shows them.
        """
}

extension MaskRules {
    /// Check of a text with mask rules, for `mask_rules` of a hub: the reason why the text is not valid, or nil.
    static let check: @Sendable ([UInt8]) -> String? = { text in
        do throws(MaskRulesError) {
            _ = try MaskRules(file: String(decoding: text, as: UTF8.self))
            return nil
        } catch {
            return error.description
        }
    }
}

extension AuditNote.Action {
    /// Participle of the action, for the error message "nothing was …".
    fileprivate var participle: String {
        switch self {
        case .unmask: "unmasked"
        case .replay: "replayed"
        case .forget: "forgotten"
        case .read, .signal, .kick, .unblock, .project: "done"
        }
    }
}

extension Arguments {
    /// Returns the masking for reading a log: the rules of its hub and of the caller, with `--mask` and `--unmask`.
    /// - Parameter directory: the directory of the log, or of the log in a bundle. It contains the rules of the log's
    ///   hub.
    func masking(_ terminal: Terminal, ofLog directory: any StorageDirectory) throws -> Masking {
        let (hidden, shown) = (try columns(.mask), try columns(.unmask))
        if let both = shown.first(where: hidden.contains) {
            throw UsageError("--mask \(both) and --unmask \(both) contradict each other")
        }
        return Masking(
            try rules(terminal, directory), hiding: hidden, showing: shown, key: try maskKey(terminal))
    }

    /// Returns the key from the file of `--mask-key`, which decides the marks in place of masked values. Nil if the
    /// option is not given; each run of a command then uses a random key.
    private func maskKey(_ terminal: Terminal) throws(UsageError) -> (UInt64, UInt64)? {
        guard let path = value(of: .maskKey) else { return nil }
        let text = try contents(of: path, named: "--mask-key", terminal)
        guard text.utf8.count >= Self.shortestKey else {
            throw UsageError("--mask-key \(path): expected at least \(Self.shortestKey) bytes that nobody can guess")
        }
        let digest = SHA256.digest(of: Array(text.utf8).span)
        func word(_ start: Int) -> UInt64 { digest[start..<start + 8].reduce(0) { $0 << 8 | UInt64($1) } }
        return (word(0), word(8))
    }

    private static let shortestKey = 16

    /// Returns the mask rules of the log's hub together with the caller's own rules, if any. A value is masked if
    /// either of the two masks it.
    private func rules(_ terminal: Terminal, _ directory: any StorageDirectory) throws -> MaskRules {
        let own = try ownRules(terminal)
        do {
            return try MaskRules.obeying(directory, and: own)
        } catch {
            let words =
                error is MaskRulesError
                ? "\(directory.path)/\(MaskRulesFile.name), \(error), so the columns to mask are unknown" : "\(error)"
            throw CommandFailure(
                .unreachable, words,
                hint: "The log's hub writes this file when it starts, or on SIGHUP. In a copy, replace it from the "
                    + "hub's own log directory.")
        }
    }

    /// Returns the caller's mask rules: those of the file that the setting `mask_rules` names. Nil if it names none.
    func ownRules(_ terminal: Terminal) throws -> MaskRules? {
        guard let path = try configuration(terminal).maskRules else { return nil }
        let text: String
        switch terminal.surroundings.readFile(path) {
        case .bytes(let bytes): text = String(decoding: bytes, as: UTF8.self)
        case .missing: throw UsageError("mask_rules: there is no file \(path), so the columns to mask are unknown")
        case .unreadable(let reason): throw UsageError("mask_rules: \(path) cannot be read: \(reason)")
        }
        do throws(MaskRulesError) {
            return try MaskRules(file: text)
        } catch {
            throw UsageError("mask_rules: \(path), \(error)")
        }
    }

    /// Returns the columns that `--mask` or `--unmask` names.
    private func columns(_ option: Option) throws(UsageError) -> [ColumnMask] {
        var columns: [ColumnMask] = []
        for text in values(of: option) {
            guard let column = ColumnMask(text) else {
                throw UsageError("--\(option.name) \(text): expected column, table.column or schema.table.column")
            }
            columns.append(column)
        }
        return columns
    }

    /// Records in the audit file which columns `--unmask` shows, before the command prints a value. Throws if that
    /// fails, so that the command shows nothing.
    func audit(_ shown: [ColumnMask], ofLog path: String, _ terminal: Terminal) throws {
        try audit(.unmask, shown.map(\.description).joined(separator: ", "), ofLog: path, terminal)
    }

    /// Records an action, such as a replay, in the audit file before the command performs it. Throws if that fails, so
    /// that the action does not happen.
    /// - Parameter what: the object of the action, in words.
    func audit(_ action: AuditNote.Action, _ what: String, ofLog path: String, _ terminal: Terminal) throws {
        let place = value(of: .auditFile) ?? AuditTrail.path(besideLog: path)
        do {
            try AuditTrail(file: place).append(
                AuditNote(
                    time: Clock.unixMicroseconds(), action: action, user: ProcessUser.name(),
                    behalf: Self.behalf(terminal.surroundings.environment), command: command, what: what,
                    subject: terminal.surroundings.environment["OPERATOR_SUB"] ?? "",
                    reason: String((value(of: .unmaskReason) ?? "").prefix(512))))
        } catch {
            throw CommandFailure(
                .notFound, "nothing was \(action.participle), because the audit file cannot be written: \(error)",
                hint: "--audit-file names a file that you may write.")
        }
    }

    /// Returns the person for whom the process acts, from the environment variable that a hub or sudo sets. Empty if
    /// there is none.
    private static func behalf(_ environment: [String: String]) -> String {
        environment["ON_BEHALF_OF"] ?? environment["SUDO_USER"] ?? ""
    }
}
