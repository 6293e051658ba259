import Console
import Ingest
import Projects
import Settings
import System

/// Command `tidewire cluster repair`: explains why a node does not take part in its cluster, and repairs that.
struct ClusterRepairCommand: Command {
    let name = "repair"
    let summary = "Say why this machine's node does not take part in the cluster, and repair that."
    let discussion = """
        Compares the node's event log with the stream at the NATS servers, as the hub does when it starts, and says \
        what is wrong and what to do. It changes nothing without --yes, and then refuses while the hub runs.

        log_ahead: the log has changes that the stream lacks. other_stream: the log follows another stream. other_log: \
        the log was begun without a cluster, and the stream has a log already. older_than_stream: the stream no longer \
        has what comes behind the log's end. For these, --yes moves the log aside (DIR.moved-TIME): when the hub \
        starts, it begins with what the stream has. 'tidewire tail --log' still reads the old log.

        stream_missing: the servers have no stream. Choose one node, the one whose log ends last, and run this command \
        there with --keep-log --yes: a new stream then continues that log. On all other nodes, --move-log --yes.

        --keep-log is also the way for a log that only this node has: stop all hubs, remove the stream with NATS's own \
        program, and use it on this node alone.

        JSON. One object: node, stream, stream_first_sequence, stream_last_sequence (null: the servers have no \
        stream), log_end (epoch and offset, or null), refusal (null: nothing is wrong), detail, repair (move_log, \
        keep_log or null), done, moved_to.
        """
    let options: [Option] = [.repairing, .moveLog, .keepLog, .project, .json]
    let optionGroups: [OptionGroup] = [
        .configuration(of: [Setting(\.clusterServers), Setting(\.clusterNode), Setting(\.dataDirectory)])
    ]
    let examples = [
        Example("tidewire cluster repair", "Why does this node not take part?"),
        Example("tidewire cluster repair --yes", "Move its log aside, so that it follows the others:"),
        Example(
            "tidewire cluster repair --keep-log --yes", "The servers lost the stream; this node's log is the longest:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let configuration = try arguments.configuration(terminal)
        guard let cluster = try configuration.cluster(surroundings: terminal.surroundings, hostName: HostName.current)
        else {
            throw CommandFailure(
                .notFound, "this hub is no node of a cluster: its setting cluster is empty",
                hint: "docs/cluster.md says how hubs become a cluster.")
        }
        guard !arguments.has(.moveLog) || !arguments.has(.keepLog) else {
            throw UsageError("--move-log and --keep-log exclude each other")
        }
        let project = arguments.value(of: .project) ?? configuration.projectName
        let repair = ClusterRepair(
            ClusterSettings(cluster, project: project), dataDirectory: try directory(project, configuration))
        let report = try report(cluster.node, arguments, repair)
        try show(report, arguments, terminal)
        return report.isDone || report.found.refusal == nil && report.repair == nil ? .ok : .notFound
    }

    /// Finds what is wrong, and repairs it if the options say so.
    private func report(_ node: String, _ arguments: Arguments, _ repair: ClusterRepair) throws -> Report {
        do throws(ClusterRepair.Failure) {
            let found = try repair.diagnose()
            var report = Report(node: node, found: found, repair: Self.choice(arguments, found))
            if arguments.has(.repairing), found.logEnd != nil { try Self.carryOut(&report, by: repair) }
            return report
        } catch {
            throw Self.explained(error)
        }
    }

    private func directory(_ project: String, _ configuration: Configuration) throws -> String {
        guard project != configuration.projectName else { return configuration.dataDirectory }
        do throws(ProjectStoreError) {
            return try ProjectPlace.directory(of: project, configuration)
        } catch {
            throw CommandFailure(.notFound, "\(error)", hint: "Is the name right, and is --data-dir the hub's?")
        }
    }

    /// Returns the repair that the options ask for, or else the usual one of what was found.
    private static func choice(_ arguments: Arguments, _ found: ClusterRepair.Diagnosis) -> ClusterRepair.Repair? {
        if arguments.has(.moveLog) { return .moveLog }
        if arguments.has(.keepLog) { return .keepLog }
        switch found.refusal {
        case .logAhead?, .otherStream?, .otherLog?, .olderThanStream?: return .moveLog
        // Which log goes on is a decision that no command can take.
        case .streamMissing?, .nameTaken?, nil: return nil
        }
    }

    private static func carryOut(_ report: inout Report, by repair: ClusterRepair) throws(ClusterRepair.Failure) {
        switch report.repair {
        case .moveLog?: report.movedTo = try repair.moveLog()
        case .keepLog?: try repair.keepLog()
        case nil: return
        }
        report.isDone = true
    }

    private static func explained(_ failure: ClusterRepair.Failure) -> CommandFailure {
        switch failure {
        case .servers:
            CommandFailure(.unreachable, "\(failure)", hint: "'tidewire doctor' checks the servers and the login.")
        case .files:
            CommandFailure(.unreachable, "\(failure)", hint: "Is --data-dir the hub's, and may you write there?")
        case .running:
            CommandFailure(
                .notFound, "\(failure)", hint: "Stop the hub of this node first: it must not write meanwhile.")
        case .streamInTheWay(let stream):
            CommandFailure(
                .notFound, "\(failure)",
                hint:
                    "If no other node has what you need: stop all hubs, run 'nats stream rm \(stream)', and repeat this."
            )
        }
    }

    // MARK: Showing

    private struct Report {
        var node: String
        var found: ClusterRepair.Diagnosis
        var repair: ClusterRepair.Repair?
        var isDone = false
        var movedTo: String?
    }

    private func show(_ report: Report, _ arguments: Arguments, _ terminal: Terminal) throws {
        if arguments.has(.json) { return try terminal.print(Self.json(report)) }
        let (found, name) = (report.found, report.found.streamName)
        let stream = found.stream.map { range in
            range.upperBound == 0 ? "\(name), empty" : "\(name), messages \(range.lowerBound) to \(range.upperBound)"
        }
        try terminal.print("node    \(report.node)")
        try terminal.print("log     \(found.logEnd.map { "ends at \($0)" } ?? "none")")
        try terminal.print("stream  \(stream ?? "none at the servers (\(name))")")
        try terminal.print("state   \(found.refusal.map { "\($0.rawValue): " } ?? "")\(found.words)")
        if report.isDone {
            let moved =
                report.movedTo.map { "moved the log to \($0)" } ?? "the log stays, and a new stream continues it"
            return try terminal.print("done: \(moved); start the hub")
        }
        for line in Self.advice(report) { try terminal.print(line) }
    }

    private static func advice(_ report: Report) -> [String] {
        let name = report.found.streamName
        switch report.repair {
        case .moveLog?:
            return [
                "repair: move the log aside; the node then begins with what the stream has",
                "        stop the hub, then: tidewire cluster repair --move-log --yes",
                "or, if only this node has the changes: stop all hubs, 'nats stream rm \(name)',",
                "        then on this node alone: tidewire cluster repair --keep-log --yes",
            ]
        case .keepLog?:
            return ["repair: a new stream continues this log: tidewire cluster repair --keep-log --yes"]
        case nil where report.found.refusal == .streamMissing:
            return [
                "repair: stop all hubs, and run this command on each node: one log must be chosen",
                "        on the node whose log ends last: tidewire cluster repair --keep-log --yes",
                "        on every other node:             tidewire cluster repair --move-log --yes",
            ]
        case nil: return []
        }
    }

    private static func json(_ report: Report) -> String {
        var line = JSONLine()
        let (found, stream) = (report.found, report.found.stream)
        line.add("node", report.node)
        line.add("stream", found.streamName)
        line.add("stream_first_sequence", json: stream.map { String($0.lowerBound) } ?? "null")
        line.add("stream_last_sequence", json: stream.map { String($0.upperBound) } ?? "null")
        line.add("log_end", found.logEnd.map { "\($0)" })
        line.add("refusal", found.refusal?.rawValue)
        line.add("detail", found.words)
        line.add("repair", report.repair?.rawValue)
        line.add("done", report.isDone)
        line.add("moved_to", report.movedTo)
        return line.text
    }
}

extension Option {
    fileprivate static let repairing = Option.flag("yes", "Carry the repair out.")
    fileprivate static let moveLog = Option.flag("move-log", "Move the log aside, so that the node begins anew.")
    fileprivate static let keepLog = Option.flag("keep-log", "Let a new stream continue this node's log.")
}
