import Asking
import Catalog
import Change
import Diagnostics
import EventLog
import Postgres
import System

/// Thread that takes snapshots, one after the other: connects, reads, sends and disconnects.
final class SnapshotWorker: AskingWorker {
    let inbox: Inbox<SnapshotLine>
    private let settings: SnapshotService.Settings
    private let tail: CommitTail
    private var restsUntil: UInt64 = 0

    init(_ settings: SnapshotService.Settings, _ settled: SettledPosition, _ inbox: Inbox<SnapshotLine>) {
        self.settings = settings
        self.inbox = inbox
        tail = CommitTail(open: settings.openLog, end: settings.logEnd, settled: settled)
    }

    private var metrics: ProjectMetrics { settings.metrics }

    func work(_ jobs: [SnapshotJob]) {
        for job in jobs {
            metrics.snapshotsRunning.add(1)
            do throws(SnapshotRefusal) {
                try take(job)
                job.tell(.complete)
            } catch {
                job.tell(.failed(error))
            }
            metrics.snapshotsRunning.add(-1)
        }
    }

    private func take(_ job: SnapshotJob) throws(SnapshotRefusal) {
        guard !job.ticket.isCancelled else { throw .cancelled }
        guard Clock.monotonicNanoseconds() >= restsUntil else { throw .databaseAway }
        let session = try connect(for: job)
        metrics.policyConnections.add(1)
        defer { metrics.policyConnections.add(-1) }
        let beginning = try reading { try tail.beginning(asking: session) }
        let began = Clock.monotonicNanoseconds()
        let opened = try session.open(job.request)
        metrics.snapshotReadSeconds.record(Clock.monotonicNanoseconds() - began)
        guard opened.rowCount <= job.request.maximumRows else {
            throw .tooManyRows(limit: job.request.maximumRows)
        }
        let position = try reading {
            try tail.position(notSeenBy: opened.visible, from: beginning) { !job.ticket.isCancelled && !inbox.isEnding }
        }
        job.tell(
            .begun(
                SnapshotStart(
                    position: position,
                    seen: SeenTransactions(visible: opened.visible, end: opened.end.rawValue),
                    time: opened.time, rowCount: opened.rowCount)))
        let pages = SnapshotPages(job, readAt: opened.time, metrics)
        for index in job.request.selections.indices { try session.read(index, into: pages) }
        try pages.finish()
    }

    private func reading<Answer>(_ read: () throws -> Answer) throws(SnapshotRefusal) -> Answer {
        do {
            return try read()
        } catch let refusal as SnapshotRefusal {
            throw refusal
        } catch {
            Log.shared.warning("cannot read the event log for a snapshot", [.reason("\(error)")])
            throw .logNotBegun
        }
    }

    // MARK: Connecting

    private func connect(for job: SnapshotJob) throws(SnapshotRefusal) -> SnapshotSession {
        let callsNothing = job.request.selections.allSatisfy(\.callsNothing)
        do throws(PostgresError) {
            let session = try SnapshotSession(
                settings.policies ?? settings.database, runsPolicies: true, interrupt: inbox.interrupt)
            session.isStillWanted = { !job.ticket.isCancelled }
            let found = try JudgingLogin.examine(session.session, clientRoles: settings.clientRoles)
            if found == .available { return session }
            guard callsNothing else { throw SnapshotWorker.unfit }
            // If a policy applies to a table by now, PostgreSQL raises an error.
            let own = try SnapshotSession(settings.database, runsPolicies: false, interrupt: inbox.interrupt)
            own.isStillWanted = { !job.ticket.isCancelled }
            return own
        } catch {
            if error == SnapshotWorker.unfit { throw .noLogin }
            if job.ticket.isCancelled { throw .cancelled }
            Log.shared.debug("cannot connect to PostgreSQL for a snapshot", [.reason(error.message)])
            restsUntil = Clock.monotonicNanoseconds() + Limits.snapshotRest.wholeNanoseconds
            throw .databaseAway
        }
    }

    private static let unfit = PostgresError(operation: "snapshot", message: "no login is fit to run policies")
}
