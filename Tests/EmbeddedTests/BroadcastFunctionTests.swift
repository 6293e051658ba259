import Postgres
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct BroadcastFunctionTests {
    let stage: RealtimeStage

    init() throws { stage = try RealtimeStage() }

    // MARK: send

    @Test func `send gives a message the id of its row`() throws {
        try stage.run("SELECT realtime.send('{\"a\": 1}', 'note', 'room:1')")
        let row = try stage.run(
            "SELECT topic, event, extension, private, payload ->> 'id' = id::text, payload ->> 'a' FROM realtime.messages"
        )
        #expect(row.values == [["room:1", "note", "broadcast", "t", "t", "1"]])
    }

    @Test func `send leaves an id that is there`() throws {
        try stage.run("SELECT realtime.send('{\"id\": 7}', 'note', 'room:1', false)")
        #expect(
            try stage.run("SELECT payload, private, id IS NOT NULL FROM realtime.messages").values
                == [["{\"id\": 7}", "f", "t"]])
    }

    @Test func `send takes its parameters by name`() throws {
        try stage.run(
            "SELECT realtime.send(private := false, topic := 't', event := 'e', payload := '{\"id\": 1}')")
        #expect(try stage.run("SELECT topic, event, private FROM realtime.messages").values == [["t", "e", "f"]])
    }

    @Test(arguments: [
        ("'3', 'e', 't'", "cannot set path in scalar"),
        ("'[1]', 'e', 't'", "path element at position 1 is not an integer: \"id\""),
        ("'{}', 'e', NULL", "null value in column \"topic\" of relation"),
    ])
    func `send warns of what it cannot send and goes on`(arguments: String, reason: String) throws {
        try stage.run("BEGIN")
        let warnings = try stage.warnings("SELECT realtime.send(\(arguments))")
        #expect(warnings.count == 1 && warnings[0].hasPrefix("WarnSendingBroadcastMessage: \(reason)"), "\(warnings)")
        try stage.run("SELECT realtime.send('{}', 'e', 'after'); COMMIT")
        #expect(try stage.column("SELECT topic FROM realtime.messages") == ["after"])
    }

    @Test func `send warns where there is no partition`() throws {
        try stage.run("SELECT format('DROP TABLE %s', inhrelid::regclass) FROM pg_inherits")
        for table in try stage.column(
            "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'realtime.messages'::regclass")
        {
            try stage.run("DROP TABLE \(table ?? "")")
        }
        let warnings = try stage.warnings("SELECT realtime.send('{}', 'e', 't')")
        #expect(warnings == ["WarnSendingBroadcastMessage: no partition of relation \"messages\" found for row"])
        #expect(try stage.refusal("INSERT INTO realtime.messages (topic, extension) VALUES ('t', 'e')") != nil)
    }

    @Test func `send_binary keeps bytes and puts no id into them`() throws {
        try stage.run("SELECT realtime.send_binary('\\x00ff', 'e', 't')")
        #expect(
            try stage.run(
                "SELECT binary_payload, payload, event, topic, private, extension FROM realtime.messages"
            ).values == [["\\x00ff", nil, "e", "t", "t", "broadcast"]])
        #expect(
            try stage.refusal(
                "INSERT INTO realtime.messages (topic, extension, payload, binary_payload) VALUES ('t', 'b', '{}', '\\x00')"
            )?.contains("messages_payload_exclusive") == true)
    }

    @Test func `both senders say the topic to the policies for the rest of the transaction`() throws {
        try stage.run("BEGIN; SELECT realtime.send('{}', 'e', 'one')")
        #expect(try stage.value("SELECT realtime.topic()") == "one")
        try stage.run("SELECT realtime.send_binary('', 'e', 'two')")
        #expect(try stage.value("SELECT realtime.topic()") == "two")
        try stage.run("COMMIT")
        #expect(try stage.run("SELECT realtime.topic()").values == [[nil]], "'' is no topic")
    }

    @Test func `without a policy a client's message is dropped with a warning`() throws {
        try stage.run("SET ROLE authenticated")
        let warnings = try stage.warnings("SELECT realtime.send('{}', 'e', 'room:1')")
        try stage.run("RESET ROLE")
        #expect(
            warnings == [
                "WarnSendingBroadcastMessage: new row violates row-level security policy for table \"messages\""
            ])
        #expect(try stage.value("SELECT count(*) FROM realtime.messages") == "0")
    }

    // MARK: broadcast_changes

    private func makeTodos() throws {
        try stage.run(
            """
            CREATE TABLE public.todos (id int PRIMARY KEY, room text, title text);
            CREATE FUNCTION public.tell() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM realtime.broadcast_changes('room:' || coalesce(new.room, old.room), tg_op, tg_op, tg_table_name,
                    tg_table_schema, new, old);
                RETURN NULL;
            END $$;
            CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON public.todos FOR EACH ROW EXECUTE FUNCTION public.tell();
            """)
    }

    @Test func `a trigger broadcasts each change in its order`() throws {
        try makeTodos()
        try stage.run(
            """
            INSERT INTO public.todos VALUES (7, 'a', 'milk'); UPDATE public.todos SET title = 'oat milk';
            DELETE FROM public.todos;
            """)
        let messages = try stage.run(
            """
            SELECT event, topic, private, payload - 'id', payload ->> 'id' = id::text FROM realtime.messages
            ORDER BY array_position('{INSERT,UPDATE,DELETE}', event)
            """
        ).values
        let rest = #""schema": "public", "operation": "#
        let milk = #"{"id": 7, "room": "a", "title": "milk"}"#
        let oat = #"{"id": 7, "room": "a", "title": "oat milk"}"#
        #expect(
            messages == [
                [
                    "INSERT", "room:a", "t",
                    #"{"table": "todos", "record": \#(milk), \#(rest)"INSERT", "old_record": null}"#, "t",
                ],
                [
                    "UPDATE", "room:a", "t",
                    #"{"table": "todos", "record": \#(oat), \#(rest)"UPDATE", "old_record": \#(milk)}"#, "t",
                ],
                [
                    "DELETE", "room:a", "t",
                    #"{"table": "todos", "record": null, \#(rest)"DELETE", "old_record": \#(oat)}"#, "t",
                ],
            ])
    }

    @Test func `a trigger of the owner broadcasts for a client that may not`() throws {
        try makeTodos()
        try stage.run("GRANT ALL ON public.todos TO authenticated; SET ROLE authenticated")
        try stage.run("INSERT INTO public.todos VALUES (1, 'a', 'milk'); RESET ROLE")
        #expect(try stage.column("SELECT topic FROM realtime.messages") == ["room:a"])
    }

    @Test func `broadcast_changes refuses what is no row's change`() throws {
        let call = { (operation: String, level: String) in
            """
            SELECT realtime.broadcast_changes(topic_name := 't', event_name := 'e', operation := '\(operation)',
                table_name := 'x', table_schema := 'public', new := NULL::pg_class, old := NULL::pg_class,
                level := '\(level)')
            """
        }
        #expect(
            try stage.refusal(call("INSERT", "STATEMENT"))
                == "Failed to process the row: function can only be triggered for each row, not for each statement")
        #expect(
            try stage.refusal(call("TRUNCATE", "ROW"))
                == "Failed to process the row: Unexpected operation type: TRUNCATE")
        #expect(try stage.refusal(call("INSERT", "ROW")) == nil)
    }

    // MARK: Policies of private channels

    /// Inserts probe rows as the hub does, and returns the probes that the client can read.
    private func readable(_ role: String, claims: String, topic: String) throws -> [String?] {
        let ids = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"]
        try stage.run("BEGIN")
        defer { _ = try? stage.run("ROLLBACK") }
        try stage.connection.query(
            "SELECT tidewire.add_channel_probes($1, '{broadcast,presence}', $2)",
            ["{\"\(topic)\",\"\(topic)\"}", "{\(ids.joined(separator: ","))}"])
        #expect(
            try stage.run("SELECT DISTINCT payload, event, private, binary_payload, topic FROM realtime.messages")
                .values
                == [[nil, nil, "f", nil, topic]])
        try stage.connection.query("SELECT set_config('request.jwt.claims', $1, true)", [claims])
        try stage.connection.query("SELECT set_config('realtime.topic', $1, true)", [topic])
        try stage.run("SET LOCAL ROLE \(role)")
        return try stage.column("SELECT extension FROM realtime.messages ORDER BY 1")
    }

    @Test func `typical policies decide about probes`() throws {
        let ana = #"{"sub": "00000000-0000-4000-8000-00000000a0a0", "role": "authenticated"}"#
        try stage.run(
            """
            CREATE TABLE public.members (user_id uuid, room text); GRANT SELECT ON public.members TO authenticated;
            INSERT INTO public.members VALUES ('00000000-0000-4000-8000-00000000a0a0', 'room:1');
            CREATE POLICY "members read" ON realtime.messages FOR SELECT TO authenticated USING (
                realtime.messages.extension IN ('broadcast', 'presence') AND EXISTS (SELECT 1 FROM public.members m
                    WHERE m.user_id = auth.uid() AND m.room = realtime.topic()));
            CREATE POLICY "members write" ON realtime.messages FOR INSERT TO authenticated WITH CHECK (
                realtime.messages.extension = 'broadcast' AND (SELECT realtime.topic()) LIKE 'room:%');
            """)
        #expect(try readable("authenticated", claims: ana, topic: "room:1") == ["broadcast", "presence"])
        #expect(try readable("authenticated", claims: ana, topic: "room:2") == [])
        #expect(try readable("anon", claims: #"{"role": "anon"}"#, topic: "room:1") == [])
        let probe = { (kind: String) in
            "INSERT INTO realtime.messages (topic, extension) VALUES ('room:1', '\(kind)')"
        }
        #expect(throws: Never.self) {
            try stage.asClient("authenticated", claims: ana, topic: "room:1", probe("broadcast"))
        }
        for (topic, kind) in [("room:1", "presence"), ("lobby", "broadcast")] {
            let error = #expect(throws: PostgresError.self) {
                try stage.asClient("authenticated", claims: ana, topic: topic, probe(kind))
            }
            #expect(error?.sqlState == SQLState.insufficientPrivilege, "\(topic) \(kind)")
        }
    }

    @Test func `a policy on what probes do not have is not met`() throws {
        try stage.run(
            "CREATE POLICY p ON realtime.messages FOR SELECT TO anon USING (private OR event IS NOT NULL)")
        #expect(try readable("anon", claims: "{}", topic: "t") == [])
    }
}
