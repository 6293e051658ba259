import Embedded
import Postgres
import System
import TestSupport
import Testing

@testable import Authorizing

/// Database with `realtime.messages`, a client role, the documented logins, and an authorizer.
final class AuthorizingStage {
    let database: TestDatabase
    /// Client role that only this stage uses, because roles belong to the whole cluster.
    let role: String
    /// Another role that the login may become.
    let other: String
    /// Role to which no policy applies, and that the login may not become.
    let trusted: String
    let logins: DocumentedLogins
    private var authorizers: [ChannelAuthorizer] = []

    init(on cluster: PrivateCluster? = nil, _ sql: String = "") throws {
        database = try TestDatabase(on: cluster)
        role = "reader_" + database.name
        other = "other_" + database.name
        trusted = "trusted_" + database.name
        try database.run("CREATE ROLE \(role) NOLOGIN NOINHERIT; CREATE ROLE \(other) NOLOGIN NOINHERIT")
        try database.run("CREATE ROLE \(trusted) NOLOGIN NOINHERIT BYPASSRLS")
        logins = try database.documentedLogins(becoming: [role, other])
        try run(Self.surroundings)
        try run(Self.messages)
        if !sql.isEmpty { try run(sql) }
    }

    private static let surroundings = """
        CREATE SCHEMA auth;
        GRANT USAGE ON SCHEMA auth, public TO READER, OTHER;
        CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS $$
            SELECT coalesce(nullif(current_setting('request.jwt.claim.sub', true), ''),
                nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')::uuid $$;
        CREATE FUNCTION auth.jwt() RETURNS jsonb LANGUAGE sql STABLE AS $$
            SELECT nullif(current_setting('request.jwt.claims', true), '')::jsonb $$;
        """

    private static let messages = """
        CREATE SCHEMA realtime;
        GRANT USAGE ON SCHEMA realtime TO READER, OTHER, TRUSTED;
        CREATE TABLE realtime.messages (
            topic text NOT NULL, extension text NOT NULL, payload jsonb, event text, private boolean DEFAULT false,
            updated_at timestamp NOT NULL DEFAULT now(), inserted_at timestamp NOT NULL DEFAULT now(),
            id uuid NOT NULL DEFAULT gen_random_uuid(), binary_payload bytea, PRIMARY KEY (id, inserted_at)
        ) PARTITION BY RANGE (inserted_at);
        CREATE TABLE realtime.messages_past PARTITION OF realtime.messages FOR VALUES FROM (MINVALUE) TO ('2024-01-01');
        CREATE TABLE realtime.messages_now PARTITION OF realtime.messages FOR VALUES FROM ('2024-01-01') TO (MAXVALUE);
        CREATE INDEX ON realtime.messages (inserted_at DESC, topic) WHERE extension = 'broadcast' AND private IS TRUE;
        ALTER TABLE realtime.messages ENABLE ROW LEVEL SECURITY;
        GRANT SELECT, INSERT, UPDATE ON realtime.messages TO READER, OTHER, TRUSTED;
        CREATE FUNCTION realtime.topic() RETURNS text LANGUAGE sql STABLE AS $$
            SELECT nullif(current_setting('realtime.topic', true), '')::text $$;
        CREATE SCHEMA tidewire;
        CREATE FUNCTION tidewire.add_channel_probes(topics text[], extensions text[], ids uuid[]) RETURNS void
        LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
            INSERT INTO realtime.messages (id, topic, extension, inserted_at, updated_at)
            SELECT p.id, p.topic, p.extension, timezone('utc', now()), timezone('utc', now())
            FROM unnest(ids, topics, extensions) AS p (id, topic, extension) $$;
        REVOKE ALL ON FUNCTION tidewire.add_channel_probes(text[], text[], uuid[]) FROM PUBLIC;
        GRANT USAGE ON SCHEMA tidewire TO HUB_ROLE, LOGIN_ROLE;
        GRANT EXECUTE ON FUNCTION tidewire.add_channel_probes(text[], text[], uuid[]) TO HUB_ROLE, LOGIN_ROLE;
        """

    deinit { for authorizer in authorizers { authorizer.stop() } }

    func run(_ sql: String) throws {
        try database.run(
            sql.replacing("READER", with: role).replacing("OTHER", with: other).replacing("TRUSTED", with: trusted)
                .replacing("LOGIN_ROLE", with: login).replacing("HUB_ROLE", with: logins.hubName))
    }

    /// SQL of the tables and policies for the rooms in §6.5.
    static let membership = """
        CREATE TABLE public.members (user_id uuid, room text, PRIMARY KEY (user_id, room));
        ALTER TABLE public.members ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON public.members FOR SELECT TO READER USING (user_id = auth.uid());
        GRANT SELECT ON public.members TO READER;
        CREATE POLICY "members read" ON realtime.messages FOR SELECT TO READER
            USING (realtime.messages.extension IN ('broadcast', 'presence')
                AND EXISTS (SELECT 1 FROM public.members m
                    WHERE m.user_id = auth.uid() AND m.room = realtime.topic()));
        CREATE POLICY "members write" ON realtime.messages FOR INSERT TO READER
            WITH CHECK (realtime.messages.extension = 'broadcast' AND (SELECT realtime.topic()) LIKE 'room:%');
        """

    /// Name of the login that policies run as.
    var login: String { logins.policyName }

    /// Returns an authorizer that uses the login for policies, or `target`.
    func authorizer(_ target: ConnectionTarget? = nil) throws -> ChannelAuthorizer {
        var settings = ChannelAuthorizer.Settings(database: logins.hub, policies: target ?? logins.policies)
        settings.clientRoles = [role]
        let authorizer = try ChannelAuthorizer(settings)
        authorizers.append(authorizer)
        return authorizer
    }

    func question(
        _ topic: String = "room:1", _ probe: ChannelQuestion.Probe = .read(presence: true), sub: Int? = nil,
        claims: String? = nil, headers: String = "{}", role: String? = nil
    ) -> ChannelQuestion {
        let role = role ?? self.role
        let subject = sub.map { SampleUUID.text($0) } ?? ""
        let usual = sub == nil ? #"{"role": "\#(role)"}"# : #"{"role": "\#(role)", "sub": "\#(subject)"}"#
        return ChannelQuestion(
            topic: Array(topic.utf8), role: role, subject: subject, claims: claims ?? usual, headers: headers,
            probe: probe)
    }

    /// Returns PostgreSQL's answer to a single question. A superuser asks it, as the specification prescribes.
    func oracle(_ question: ChannelQuestion) throws -> ChannelAnswer {
        let connection = database.connection
        _ = try connection.query("BEGIN")
        defer { _ = try? connection.query("ROLLBACK") }
        do throws(PostgresError) {
            switch question.probe {
            case .read(let presence): return try read(question, presence, connection)
            case .write:
                try settings(question, connection)
                return .rights(
                    broadcast: try write("broadcast", question, connection),
                    presence: try write("presence", question, connection))
            }
        } catch {
            return .failed(.policy(sqlState: error.sqlState ?? ""))
        }
    }

    private func read(
        _ question: ChannelQuestion, _ presence: Bool, _ connection: Connection
    ) throws(PostgresError) -> ChannelAnswer {
        var ids: [String] = []
        for kind in presence ? ["broadcast", "presence"] : ["broadcast"] {
            ids.append(try connection.query("SELECT gen_random_uuid()").first?[0] ?? "")
            try connection.query(
                """
                INSERT INTO realtime.messages (id, topic, extension, inserted_at, updated_at)
                VALUES ($1, $2, $3, timezone('utc', now()), timezone('utc', now()))
                """, [ids.last, String(decoding: question.topic, as: UTF8.self), kind])
        }
        try settings(question, connection)
        let seen = try connection.query(
            "SELECT id FROM realtime.messages WHERE id IN ($1, $2)", [ids[0], ids.last]
        ).values.map { $0[0] }
        return .rights(broadcast: seen.contains(ids[0]), presence: presence ? seen.contains(ids[1]) : nil)
    }

    private func write(
        _ kind: String, _ question: ChannelQuestion, _ connection: Connection
    ) throws(PostgresError) -> Bool {
        try connection.query("SAVEPOINT probe")
        do throws(PostgresError) {
            try connection.query(
                """
                INSERT INTO realtime.messages (topic, extension, inserted_at, updated_at)
                VALUES ($1, $2, timezone('utc', now()), timezone('utc', now()))
                """, [String(decoding: question.topic, as: UTF8.self), kind])
            return true
        } catch {
            guard error.sqlState == SQLState.insufficientPrivilege else { throw error }
            try connection.query("ROLLBACK TO SAVEPOINT probe")
            return false
        }
    }

    private func settings(_ question: ChannelQuestion, _ connection: Connection) throws(PostgresError) {
        try connection.query(
            """
            SELECT set_config('role', $1, true), set_config('realtime.topic', $2, true),
                set_config('request.jwt.claims', $3, true), set_config('request.jwt.claim.sub', $4, true),
                set_config('request.jwt.claim.role', $1, true), set_config('request.headers', $5, true)
            """,
            [
                question.role, String(decoding: question.topic, as: UTF8.self), question.claims, question.subject,
                question.headers,
            ])
    }
}

extension ChannelAuthorizer {
    /// Asks all questions once, at the same time, and waits. An element is nil if its question got no answer.
    func answersAtOnce(_ questions: [ChannelQuestion]) -> [ChannelAnswer?] {
        let results = questions.map { _ in Awaited<ChannelAnswer>() }
        for (question, result) in zip(questions, results) { ask(question) { result.set($0) } }
        return results.map { $0.wait() }
    }

    /// Asks all questions, and asks those again that took too long, as a client joins again. The answer of a policy does
    /// not depend on the speed of the machine; the attempt in which it comes does.
    func answers(_ questions: [ChannelQuestion]) -> [ChannelAnswer?] {
        var found = answersAtOnce(questions)
        while true {
            let late = found.indices.filter { found[$0]?.tookTooLong ?? false }
            if late.isEmpty { return found }
            for (index, answer) in zip(late, answersAtOnce(late.map { questions[$0] })) { found[index] = answer }
        }
    }

    func answer(_ question: ChannelQuestion) -> ChannelAnswer? { answers([question])[0] }
}

extension ChannelAnswer {
    /// True if the time that a question may take decided, and no policy.
    fileprivate var tookTooLong: Bool {
        switch self {
        case .failed(.canceled), .failed(.exhausted): true
        default: false
        }
    }

    static func read(_ broadcast: Bool, _ presence: Bool?) -> ChannelAnswer {
        .rights(broadcast: broadcast, presence: presence)
    }

    static var nothing: ChannelAnswer { .rights(broadcast: false, presence: false) }
    static var all: ChannelAnswer { .rights(broadcast: true, presence: true) }
}
