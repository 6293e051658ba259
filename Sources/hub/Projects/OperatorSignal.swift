import Bytes
import Change
import Diagnostics
import Gateway
import Ingest
import Replication
import System
import WebSocket

/// Request of an operator to a running project.
public struct OperatorSignal: Sendable, Equatable {
    enum Kind: String, CaseIterable {
        /// Writes the operator's text to the end of the log.
        case mark
        /// Ends the log's current segment, so that a backup or an erasure needs only sealed segments.
        case rotate
        /// Pauses reading from the database.
        case pause
        /// Ends a pause.
        case resume
        /// Writes rows of a table into the log, for rows of which the log has no change.
        case backfill
    }

    struct Refusal: Error {
        let reason: String
    }

    let kind: Kind
    /// Operator's text, which the hub writes into the log with the record of the signal; empty if none was given.
    let text: String
    /// Duration of a pause.
    let duration: Duration
    /// Rows that a backfill writes into the log; nil for other signals.
    let rows: KeptRows?
    /// Database from which the rows of a backfill were read; nil for other signals.
    let database: FollowedDatabase?

    /// Parses a signal.
    ///
    /// - Parameter body: JSON object with `text`, for a pause also `seconds`, and for a backfill also the rows
    ///   (`BackfillBody`); or no bytes.
    init(_ name: String, _ body: [UInt8]) throws(Refusal) {
        guard let kind = Kind(rawValue: name) else {
            throw Refusal(reason: "a signal is one of \(Kind.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        self.kind = kind
        let members = try Self.members(of: body, kind)
        guard let text = members["text"].map(\.string) ?? "", text.utf8.count <= Limits.maximumMarkBytes else {
            throw Refusal(reason: "text is a string of at most \(Limits.maximumMarkBytes) bytes")
        }
        guard kind != .mark || !text.isEmpty else { throw Refusal(reason: "a mark has a text") }
        let most = Limits.maximumPause.wholeSeconds
        guard let seconds = members["seconds"].map(\.integer) ?? Limits.usualPause.wholeSeconds,
            (1...most).contains(seconds), members["seconds"] == nil || kind == .pause
        else { throw Refusal(reason: "seconds, of a pause, is a number from 1 to \(most)") }
        self.text = text
        duration = .seconds(seconds)
        rows = kind == .backfill ? try BackfillBody.rows(members) : nil
        database = kind == .backfill ? try BackfillBody.database(members) : nil
        assert((rows == nil) == (database == nil), "rows come together with the database that they are from")
    }

    private static func members(of body: [UInt8], _ kind: Kind) throws(Refusal) -> JSONObject {
        if body.isEmpty { return JSONObject() }
        guard
            let members =
                (try? JSONValue.parse(
                    body, maximumDepth: BackfillBody.depth))?.object
        else {
            throw Refusal(reason: "the body is no JSON object")
        }
        let known = ["text", "seconds"] + (kind == .backfill ? BackfillBody.names : [])
        if let other = members.members.first(where: { !known.contains($0.name) }) {
            throw Refusal(reason: "\(String(other.name.prefix(40))) is nothing that a signal has")
        }
        return members
    }
}

extension RunningProject {
    /// Carries out the operator's signal. The answer states if the log already has the signal's record on the disk.
    func carryOut(_ signal: OperatorSignal) -> HTTPResponse {
        let (now, wall) = (Clock.monotonicNanoseconds(), Clock.unixMicroseconds())
        var text = signal.text
        var answer = JSONObject([("action", .string(signal.kind.rawValue)), ("time", .string(Self.moment(wall)))])
        switch signal.kind {
        case .mark: Log.shared.info("an operator wrote a mark into the event log", [.reason(text)])
        case .rotate: Log.shared.info("an operator asked for a new segment of the event log", [.reason(text)])
        case .pause:
            let until = Self.moment(wall + Int64(signal.duration.wholeSeconds) * 1_000_000)
            answer["until"] = .string(until)
            text = "until \(until)" + (text.isEmpty ? "" : ": \(text)")
            Log.shared.warning(
                "an operator paused the replication stream: PostgreSQL keeps its WAL, and clients wait for changes",
                [.duration(signal.duration), .reason(signal.text)])
        case .resume:
            guard ingest.pause.finish() else { return .message(.conflict, "the stream is not paused") }
            Log.shared.info("an operator ended the pause", [.reason(text)])
        case .backfill:
            assert(signal.rows != nil, "a backfill has rows")
            guard let followed = ingest.status.database, followed == signal.database else {
                return ingest.status.database == nil
                    ? .message(.serviceUnavailable, "the database has not been reached yet")
                    : .message(.conflict, "the rows are of another database than the log")
            }
            guard var rows = signal.rows, hasCome(to: rows.lsn, until: now + Limits.markPatience.wholeNanoseconds)
            else {
                return .message(.serviceUnavailable, "the log has not come to where the rows were read yet")
            }
            rows.time = wall
            guard ingest.record(rows) else {
                return .message(.serviceUnavailable, "the log does not take anything just now")
            }
            answer["rows"] = .number(rows.rows.count)
            text = [BackfillBody.table(of: rows), text].filter { !$0.isEmpty }.joined(separator: ": ")
            if rows.isLast {
                Log.shared.info("an operator wrote all rows of a table into the event log", [.reason(text)])
            }
        }
        let isMarked = signal.rows?.isLast ?? true
        assert(isMarked || signal.kind == .backfill, "only a part of a backfill goes without a mark")
        let isTaken =
            !isMarked || ingest.record(OperatorMark(signal.kind.action, time: wall, text: Array(text.utf8)))
        // The pause begins after its mark is in the log.
        if signal.kind == .pause { ingest.pause.begin(until: now + signal.duration.wholeNanoseconds) }
        guard isTaken else { return .message(.serviceUnavailable, "the log does not take anything just now") }
        let isWritten =
            switch signal.kind {
            case .rotate: ingest.seal(within: Limits.markPatience)
            // The operator sends the next part when this one is accepted. For the last part, the hub waits until all
            // are written.
            case .backfill where !isMarked: false
            default: isWritten(until: now + Limits.markPatience.wholeNanoseconds)
            }
        answer["written"] = .bool(isWritten)
        answer["offset"] = ingest.nextOffset.map { .number(String($0)) } ?? .null
        return .json(.ok, JSONValue.object(JSONObject([("data", .object(answer))])).bytes)
    }

    /// Waits until the log has all changes before the LSN. Returns false if it does not have them at the deadline, a
    /// monotonic time in nanoseconds.
    private func hasCome(to lsn: LSN, until deadline: UInt64) -> Bool {
        while ingest.status.covered < lsn {
            guard Clock.monotonicNanoseconds() < deadline else { return false }
            BackgroundThread.rest(nanoseconds: 10_000_000)
        }
        return true
    }

    private static func moment(_ microseconds: Int64) -> String { TimeText.write(microseconds / 1_000_000) + "Z" }

    /// Waits until the ingest thread has written all marks to the log. Returns false at the deadline, in monotonic
    /// nanoseconds.
    private func isWritten(until deadline: UInt64) -> Bool {
        while !ingest.hasWrittenMarks {
            guard Clock.monotonicNanoseconds() < deadline else { return false }
            BackgroundThread.rest(nanoseconds: 10_000_000)
        }
        return true
    }
}

extension OperatorSignal.Kind {
    fileprivate var action: OperatorMark.Action {
        switch self {
        case .mark: .marked
        case .rotate: .rotated
        case .pause: .paused
        case .resume: .resumed
        case .backfill: .backfilled
        }
    }
}
