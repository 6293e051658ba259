import Embedded
import Postgres
import Synchronization
import System

/// Private PostgreSQL of a verification run. PostgreSQL itself records in a journal the committed changes, their order
/// and who may see them.
///
/// A trigger writes a line for every row change. At the end of each transaction, a second trigger takes a lock that is
/// held until the commit. It evaluates each row image for each listener, with the role, claims, policies and
/// memberships of this moment, and then numbers the transaction. To evaluate the image of a deleted row, the trigger
/// inserts it again in a subtransaction that is rolled back.
final class VerifyDatabase: Sendable {
    let secret: String
    private let cluster: Mutex<PrivateCluster>
    private let target: ConnectionTarget

    /// - Parameter network: network of a cluster, on which the database listens too.
    init(directory: String, secret: String, listeners: [Listener], network: VerifyNetwork? = nil) throws {
        self.secret = secret
        let address = network?.address(of: .database)
        var options = PrivateCluster.Options()
        options.isThrowaway = true
        options.settings = [
            "max_wal_size=512MB", "logical_decoding_work_mem=256kB", "restart_after_crash=on", "jit=off",
        ]
        if let address { options.settings.append("listen_addresses=127.0.0.1,\(address)") }
        let cluster = try PrivateCluster(directory: directory, options: options)
        if address != nil { try Self.admitHosts(directory + "/data") }
        try cluster.start()
        target = cluster.target()
        let connection = try cluster.connect()
        for file in SQLFile.foundation { try file.apply(connection) }
        for role in ["tidewire", "tidewire_policies"] {
            try connection.execute("ALTER ROLE \(role) PASSWORD '\(secret)'")
        }
        func url(_ user: String) -> String {
            let local = cluster.url(user: user, password: secret)
            return address.map { local.replacing("@127.0.0.1:", with: "@\($0):") } ?? local
        }
        (hubURL, policyURL) = (url("tidewire"), url("tidewire_policies"))
        try connection.execute(VerifySQL.oracle)
        for table in VerifyTable.all { try connection.execute(VerifySQL.table(table)) }
        for listener in listeners {
            try connection.query(
                "INSERT INTO verify.listeners VALUES ($1, $2, $3, $4, $5)",
                [
                    String(listener.number), listener.table, listener.person.role, listener.person.claims,
                    listener.condition,
                ])
        }
        self.cluster = Mutex(cluster)
    }

    /// Lets logins come from any address that the server listens on.
    private static func admitHosts(_ data: String) throws {
        let script = "echo 'host all all 10.0.0.0/8 scram-sha-256' >>'\(data)/pg_hba.conf'"
        _ = try ChildProcess(["sh", "-c", script]).wait()
    }

    let hubURL: String
    let policyURL: String

    func connect() throws -> Connection { try Connection(target, applicationName: "verify") }

    /// Stops or kills PostgreSQL and starts it again on the same port.
    func restart(killing: Bool, pauseMilliseconds: Int) throws {
        try cluster.withLock { cluster in
            if killing { cluster.kill() } else { cluster.stop() }
            Pause.milliseconds(pauseMilliseconds)
            try cluster.start()
        }
    }

    func stop() { cluster.withLock { $0.stop() } }
}

/// Connection to the database, made again after it was lost. `attempt` ignores failures; `insist` repeats the SQL.
struct VerifySession {
    private let database: VerifyDatabase
    private var connection: Connection?

    init(_ database: VerifyDatabase) { self.database = database }

    /// Runs SQL. Returns nil if it failed: then it had no effect, or its effect is unknown.
    mutating func attempt(_ sql: String) -> Rows? {
        do {
            if connection == nil { connection = try database.connect() }
            return try connection?.execute(sql)
        } catch let error as PostgresError where !error.isConnectionLost {
            if (try? connection?.execute("ROLLBACK")) == nil { connection = nil }
            return nil
        } catch {
            connection = nil
            Pause.milliseconds(50)
            return nil
        }
    }

    /// Runs SQL until it succeeds, at most 1200 times. The SQL must be safe to run twice.
    mutating func insist(_ sql: String) throws -> Rows {
        for _ in 0..<1200 {
            if let rows = attempt(sql) { return rows }
            Pause.milliseconds(50)
        }
        throw BenchFailure("the database does not do: \(sql.prefix(120))")
    }
}

enum VerifySQL {
    static func table(_ table: VerifyTable) -> String {
        var made = """
            CREATE TABLE \(table.name) (id bigint PRIMARY KEY, v bigint, owner uuid, team int, n int, kind text, note text);
            CREATE INDEX ON \(table.name) (v);
            ALTER TABLE \(table.name) REPLICA IDENTITY FULL;
            GRANT SELECT ON \(table.name) TO anon, authenticated;
            ALTER PUBLICATION supabase_realtime ADD TABLE \(table.name);
            CREATE TRIGGER a_version BEFORE INSERT OR UPDATE ON \(table.name)
                FOR EACH ROW EXECUTE FUNCTION verify.new_version();
            CREATE TRIGGER journal AFTER INSERT OR UPDATE OR DELETE ON \(table.name)
                FOR EACH ROW EXECUTE FUNCTION verify.note();
            """
        if let policy = table.policy {
            made += """
                ALTER TABLE \(table.name) ENABLE ROW LEVEL SECURITY;
                CREATE POLICY reads ON \(table.name) FOR SELECT USING (\(policy));
                """
        }
        return made
    }

    /// Maximum number of journal lines that one query returns, many more than a transaction has.
    static let page = 20_000

    /// Returns a query for the journal lines of all transactions with a number greater than `sequence`.
    static func lines(after sequence: Int64) -> String {
        """
        SELECT seq, operation, CASE operation WHEN 'DELETE' THEN id ELSE v END, tab, array_to_string(shown_to, ' '), is_published
        FROM verify.journal WHERE seq > \(sequence) ORDER BY seq, place LIMIT \(page)
        """
    }

    static let lastCommit = "SELECT last_value FROM verify.commits"

    /// SQL that creates the journal with its triggers. Also creates the tables that no client listens to: `members`,
    /// which a policy reads, and `other`, whose definition the faults change.
    static let oracle = """
        CREATE SCHEMA verify;
        GRANT USAGE ON SCHEMA verify TO anon, authenticated, service_role;
        CREATE SEQUENCE verify.versions;
        CREATE SEQUENCE verify.commits;
        CREATE TABLE verify.journal (
            place bigserial PRIMARY KEY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), seq bigint, tab text,
            operation text, id bigint, v bigint, was jsonb, is_published boolean, shown_to int[] NOT NULL DEFAULT '{}');
        CREATE INDEX ON verify.journal (xid) WHERE seq IS NULL;
        CREATE INDEX ON verify.journal (seq);
        CREATE TABLE verify.listeners (number int PRIMARY KEY, tab text, role text, claims text, condition text);
        CREATE TYPE verify.sight AS (listener int, v bigint);

        CREATE FUNCTION verify.new_version() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.v := nextval('verify.versions');
            NEW.note := 'v' || NEW.v;
            RETURN NEW;
        END $$;

        CREATE FUNCTION verify.note() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE is_published boolean := EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
            WHERE p.pubname = 'supabase_realtime' AND r.prrelid = TG_RELID);
        BEGIN
            IF TG_OP = 'DELETE' THEN
                INSERT INTO verify.journal (tab, operation, id, v, was, is_published)
                VALUES (TG_TABLE_NAME, TG_OP, OLD.id, OLD.v, to_jsonb(OLD), is_published);
            ELSE
                INSERT INTO verify.journal (tab, operation, id, v, is_published)
                VALUES (TG_TABLE_NAME, TG_OP, NEW.id, NEW.v, is_published);
            END IF;
            RETURN NULL;
        END $$;

        CREATE FUNCTION verify.visible(versions bigint[], listener verify.listeners) RETURNS bigint[] LANGUAGE plpgsql AS $$
        DECLARE seen bigint[];
        BEGIN
            PERFORM set_config('request.jwt.claims', listener.claims, true), set_config('role', listener.role, true);
            EXECUTE format('SELECT array_agg(v) FROM public.%I WHERE v = ANY($1) AND (%s)', listener.tab, listener.condition)
                INTO seen USING versions;
            PERFORM set_config('role', 'none', true);
            RETURN seen;
        END $$;

        CREATE FUNCTION verify.ask(name text, versions bigint[]) RETURNS verify.sight[] LANGUAGE sql AS $$
            SELECT coalesce(array_agg(ROW(l.number, s.v)::verify.sight), '{}')
            FROM verify.listeners l, unnest(verify.visible(versions, l)) s (v) WHERE l.tab = name $$;

        CREATE FUNCTION verify.ask_of_deleted(name text, versions bigint[], images jsonb[]) RETURNS verify.sight[]
        LANGUAGE plpgsql AS $$
        DECLARE found verify.sight[];
        BEGIN
            BEGIN
                PERFORM set_config('session_replication_role', 'replica', true);
                EXECUTE format('INSERT INTO public.%1$I SELECT r.* FROM unnest($1) i,
                    jsonb_populate_record(NULL::public.%1$I, i) r', name) USING images;
                found := verify.ask(name, versions);
                RAISE EXCEPTION USING ERRCODE = 'VF001';
            EXCEPTION WHEN SQLSTATE 'VF001' THEN
                RETURN found;
            END;
        END $$;

        CREATE FUNCTION verify.judge_table(mine xid8, name text) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            found verify.sight[] := '{}';
            there bigint[];
            gone bigint[];
            images jsonb[];
        BEGIN
            SELECT array_agg(v) FILTER (WHERE was IS NULL), array_agg(v) FILTER (WHERE was IS NOT NULL),
                array_agg(was) FILTER (WHERE was IS NOT NULL) INTO there, gone, images
                FROM verify.journal WHERE xid = mine AND seq IS NULL AND tab = name;
            IF there IS NOT NULL THEN found := found || verify.ask(name, there); END IF;
            IF gone IS NOT NULL THEN found := found || verify.ask_of_deleted(name, gone, images); END IF;
            WITH shown AS (SELECT v, array_agg(listener) listeners FROM unnest(found) GROUP BY v)
            UPDATE verify.journal j SET shown_to = s.listeners FROM shown s
            WHERE j.xid = mine AND j.seq IS NULL AND j.tab = name AND j.v = s.v;
        END $$;

        CREATE FUNCTION verify.judge() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            mine xid8 := pg_current_xact_id();
            name text;
            number bigint;
        BEGIN
            IF NOT EXISTS (SELECT FROM verify.journal WHERE xid = mine AND seq IS NULL) THEN RETURN NULL; END IF;
            PERFORM pg_advisory_xact_lock(1);
            FOR name IN SELECT DISTINCT tab FROM verify.journal WHERE xid = mine AND seq IS NULL LOOP
                PERFORM verify.judge_table(mine, name);
            END LOOP;
            number := nextval('verify.commits');
            UPDATE verify.journal SET seq = number WHERE xid = mine AND seq IS NULL;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER judge AFTER INSERT ON verify.journal DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION verify.judge();

        CREATE TABLE members (team int, person uuid, PRIMARY KEY (team, person));
        ALTER TABLE members REPLICA IDENTITY FULL;
        ALTER TABLE members ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON members FOR SELECT USING (person = auth.uid());
        GRANT SELECT ON members TO anon, authenticated;
        ALTER PUBLICATION tidewire_internal ADD TABLE members;
        INSERT INTO members SELECT 1 + (p * 7 + t) % 4, ('00000000-0000-4000-8000-00000000000' || p)::uuid
            FROM generate_series(1, 4) p, generate_series(1, 2) t;
        CREATE FUNCTION verify.may_read(owner uuid, kind text) RETURNS boolean LANGUAGE plpgsql STABLE
            AS $$ BEGIN RETURN owner = auth.uid() OR kind = 'a'; END $$;
        CREATE TABLE other (id int PRIMARY KEY, v int);
        ALTER TABLE other ENABLE ROW LEVEL SECURITY;
        CREATE POLICY reads ON other FOR SELECT USING (true);
        ALTER PUBLICATION supabase_realtime ADD TABLE other;
        """
}
