import Asking
import Diagnostics
import Postgres
import Replication
import System

/// Janitor of the partitions of `realtime.messages`. It creates partitions for coming days and drops those that are
/// older than the retention.
///
/// The janitor has its own thread, and a new connection for each round. It calls the SQL function
/// `tidewire.keep_messages`. If the function is missing and the login has the rights of the table's owner, the janitor
/// does the work itself. Otherwise it logs a warning once.
public final class MessagesJanitor: Sendable {
    private let interrupt: Wake
    private let call: Wake
    private let thread: BackgroundThread

    /// Creates the janitor and starts its thread.
    ///
    /// - Parameter hours: the retention. Partitions of days that ended earlier are dropped.
    public init(
        _ target: ConnectionTarget, hours: Int, reachability: Reachability = Reachability()
    ) throws(SystemError) {
        Limits.checkMessages()
        let (interrupt, call) = (try Wake(), try Wake())
        self.interrupt = interrupt
        self.call = call
        let rounds = LogScope.carried {
            JanitorRounds(target, hours: hours, interrupt, reachability).run(orCalled: call)
        }
        thread = try BackgroundThread("janitor", rounds)
    }

    /// Starts a round soon, because a partition is missing. Any thread may call this.
    public func isMissed() { call.ring() }

    /// Ends the thread and its current work. The owner calls this once, on a thread that shares descriptors with the
    /// thread that created the janitor.
    public func stop() {
        interrupt.ring()
        thread.join()
    }
}

/// Loop of the janitor's thread, and the state that it keeps between rounds.
final class JanitorRounds {
    private let target: ConnectionTarget
    private let hours: Int
    private let interrupt: Wake
    private var backoff: Backoff
    private let troubles: OutageReporter
    private var lastComplaint: Means?

    init(
        _ target: ConnectionTarget, hours: Int, _ interrupt: Wake, _ reachability: Reachability = Reachability()
    ) {
        backoff = Backoff(reachability)
        troubles = OutageReporter(
            "cannot maintain the partitions of realtime.messages; trying again",
            again: "still cannot maintain the partitions of realtime.messages; trying again", reachability)
        self.target = target
        self.hours = hours
        self.interrupt = interrupt
    }

    func run(orCalled call: Wake) {
        while !interrupt.isRung {
            call.clear()
            let pause = round()
            // If the janitor cannot create a missing partition, calls must not start rounds continually.
            interrupt.sleep(milliseconds: min(pause, Limits.janitorCallInterval).wholeMilliseconds)
            backoff.wait(pause, interrupt, orCalled: call)
        }
    }

    /// Runs one round. Returns the duration until the next one.
    func round() -> Duration {
        do throws(PostgresError) {
            let work = try attempt()
            backoff.reset()
            troubles.isOver()
            report(work)
            // The duration is random, so that several hubs with one database do not start rounds together.
            let rest = work.postponed.isEmpty ? Limits.janitorInterval : Limits.janitorRetryInterval
            return rest * Double.random(in: 0.9...1.1)
        } catch {
            guard !interrupt.isRung else { return .zero }
            let pause = error.isConnectionLost ? backoff.next() : Limits.janitorRetryInterval
            troubles.report(error, pause, at: Clock.monotonicNanoseconds())
            return pause
        }
    }

    // MARK: One round

    /// Way in which this login can maintain the partitions.
    enum Means: Equatable {
        case function, ownership, none
        case noTable
    }

    struct Work: Equatable {
        var made: [String] = []
        var dropped: [String] = []
        var postponed: [String] = []
        var refused: [String] = []
    }

    private func attempt() throws(PostgresError) -> Work {
        let connection = try Connection(
            target, applicationName: "realtime_janitor", timeoutSeconds: Limits.connectTimeout.wholeSeconds,
            settings: [
                "statement_timeout=\(Limits.janitorQueryTimeout.wholeMilliseconds)",
                "lock_timeout=\(Limits.janitorLockTimeout.wholeMilliseconds)", "search_path=pg_catalog",
            ], interrupt: interrupt)
        connection.ignoreNotices()
        let means = try means(connection)
        complain(means)
        switch means {
        case .function: return try callFunction(connection)
        case .ownership: return try PartitionKeeping(connection, hours: hours, interrupt).work()
        case .none, .noTable: return Work()
        }
    }

    private func means(_ connection: Connection) throws(PostgresError) -> Means {
        // The query reads the catalog, because to_regclass and similar functions fail without USAGE on the schema.
        let rows = try connection.execute(
            """
            SELECT pg_has_role(session_user, c.relowner, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE'), EXISTS (
                SELECT FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
                WHERE s.nspname = 'tidewire' AND p.proname = 'keep_messages'
                    AND has_schema_privilege(s.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'))
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'realtime' AND c.relname = 'messages' AND c.relkind = 'p'
            """, interrupt: interrupt)
        guard let row = rows.first else { return .noTable }
        if row[1] == "t" { return .function }
        return row[0] == "t" ? .ownership : .none
    }

    private func callFunction(_ connection: Connection) throws(PostgresError) -> Work {
        let rows = try connection.execute(
            """
            SELECT array_to_string(made, ' '), array_to_string(dropped, ' '), array_to_string(postponed, ' '),
                array_to_string(refused, ' ')
            FROM tidewire.keep_messages(\(hours))
            """, interrupt: interrupt)
        let lists = (rows.first ?? []).map { ($0 ?? "").split(separator: " ").map(String.init) }
        guard lists.count == 4 else { return Work() }
        return Work(made: lists[0], dropped: lists[1], postponed: lists[2], refused: lists[3])
    }

    // MARK: Logging

    private func report(_ work: Work) {
        if !work.made.isEmpty {
            Log.shared.info("created partitions of realtime.messages", [.relation(work.made.joined(separator: " "))])
        }
        if !work.dropped.isEmpty {
            Log.shared.info(
                "dropped old partitions of realtime.messages", [.relation(work.dropped.joined(separator: " "))])
        }
        if !work.postponed.isEmpty {
            Log.shared.info(
                "cannot create or drop partitions of realtime.messages, because they are in use; trying again later",
                [.relation(work.postponed.joined(separator: " "))])
        }
        if !work.refused.isEmpty {
            Log.shared.warning(
                "cannot drop old partitions of realtime.messages",
                [
                    .relation(work.refused.joined(separator: " ")),
                    .hint("drop them as a superuser, or give them the owner of realtime.messages"),
                ])
        }
    }

    private func complain(_ means: Means) {
        guard means != lastComplaint else { return }
        lastComplaint = means
        switch means {
        case .function, .ownership: break
        case .none:
            Log.shared.warning(
                "the hub's login may not create tomorrow's partition of realtime.messages",
                [.hint("run 'tidewire db apply' as a superuser: it applies sql/realtime/090_upkeep.sql")])
        case .noTable:
            Log.shared.warning(
                "the table realtime.messages is missing: private channels and broadcasts from the database do not work",
                [.hint("run 'tidewire db apply': it applies sql/realtime")])
        }
    }
}
