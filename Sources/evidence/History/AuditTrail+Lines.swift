import Bytes
import EventLog
import System

/// Line of the audit trail: a record that can be read, or a damaged line.
public enum AuditLine: Sendable, Equatable {
    case note(AuditNote)
    /// The line was altered, or a line before it is missing. `line` counts from one.
    case damaged(line: Int)
}

extension AuditTrail {
    /// Returns all lines, oldest first; an empty array if there is no audit trail.
    public func lines() throws(SystemError) -> [AuditLine] {
        let bytes = try contents()
        var before = ""
        return bytes.split(separator: UInt8(ascii: "\n")).enumerated().map { index, line in
            let sum = Self.sum(of: line)
            defer { before = sum ?? "" }
            guard sum != nil, let (note, after) = Self.decode(line), after == before else {
                return .damaged(line: index + 1)
            }
            return .note(note)
        }
    }

    private static func decode(_ line: ArraySlice<UInt8>) -> (AuditNote, after: String)? {
        let bytes = Array(line)
        var scanner = JSONScanner(bytes.rawBytes)
        guard (try? scanner.next()) == .beginObject, let fields = try? ImportFields(&scanner),
            let time = try? fields.time("time"), let name = try? fields.text("action"),
            let action = AuditNote.Action(rawValue: name), let user = try? fields.text("user"),
            let command = try? fields.text("command"), let what = try? fields.text("what"),
            let after = try? fields.text("after")
        else { return nil }
        func optional(_ name: String) -> String { (try? fields.text(name)) ?? "" }
        let note = AuditNote(
            time: time, action: action, user: user, behalf: optional("behalf"), command: command, what: what,
            subject: optional("operator"), reason: optional("reason"))
        return (note, after)
    }
}
