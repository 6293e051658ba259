import Auth
import TestSupport
import Testing

@testable import Projects
@testable import Settings

@Suite(.within(minutes: 10)) struct ProjectRecordTests {
    @Test func `takes a description as the reference's documents have it`() throws {
        let record = try recorded(
            tenantText("realtime-dev", #","name":"Other","max_events_per_second":250,"private_only":true"#))
        #expect(record.externalID == "realtime-dev")
        #expect(record.name == "realtime-dev", "a new project is named by its id")
        #expect(record.jwtSecret?.revealed == "s3cret-of-thirty-two-bytes-or-more" && record.keySet == nil)
        #expect(
            record.database?.revealed
                == "host='db.example' port='6543' user='hub' dbname='app' password='hunter2' sslmode='require'")
        #expect(record.publication == "supabase_realtime" && record.slot == nil && record.region == "us-east-1")
        #expect(record.maximumRecordBytes == 1_048_576 && !record.isSuspended)
        let limits = record.limits(stageDefaults)
        #expect(limits.maximumEventsPerSecond == 250 && limits.isPrivateOnly)
        #expect(limits.maximumConcurrentUsers == 10_000 && limits.maximumPresenceEventsPerSecond == nil)
        #expect(limits.clientPresenceEvents == 5 && limits.clientPresenceWindow == .seconds(30))
        #expect(limits.maximumPayloadBytes == 3_000_500 && limits.maximumChannelsPerClient == 100)
    }

    @Test func `makes UUIDs that differ`() throws {
        let ids = try (0..<50).map { _ in try recorded(tenantText()).id }
        #expect(Set(ids).count == 50)
        for id in ids {
            #expect(id.wholeMatch(of: /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/) != nil)
        }
    }

    @Test func `changes only what is given`() throws {
        let old = try recorded(tenantText("app", #","max_joins_per_second":7,"suspend":true"#))
        let new = try recorded(#"{"external_id":"app","name":"N","suspend":"false"}"#, replacing: old, named: "app")
        #expect(new.id == old.id && new.externalID == "app" && new.name == "N")
        #expect(!new.isSuspended && old.isSuspended)
        #expect(new.limits(stageDefaults).maximumJoinsPerSecond == 7)
        #expect(new.extensions == old.extensions && new.jwtSecret == old.jwtSecret)
    }

    @Test func `gives a value back to its default when it is taken away`() throws {
        let old = try recorded(
            tenantText("app", #","max_joins_per_second":7,"max_client_presence_events_per_window":0"#))
        #expect(old.limits(stageDefaults).clientPresenceEvents == nil)
        let new = try recorded(
            #"{"max_joins_per_second":null,"max_client_presence_events_per_window":null}"#, replacing: old,
            named: "app")
        #expect(new.limits(stageDefaults).maximumJoinsPerSecond == 2500)
        #expect(new.limits(stageDefaults).clientPresenceEvents == 5)
    }

    @Test func `takes numbers and flags that come as texts, and zero as no limit`() throws {
        let record = try recorded(
            tenantText(
                "app", #","max_events_per_second":"0","presence_enabled":"1","client_presence_window_ms":1500"#))
        let limits = record.limits(stageDefaults)
        #expect(limits.maximumEventsPerSecond == nil && limits.presenceEnabled)
        #expect(limits.clientPresenceWindow == .milliseconds(1500))
    }

    @Test func `brings numbers that are too large to what the hub can do`() throws {
        let record = try recorded(
            tenantText("app", #","max_channels_per_client":2000000000,"max_payload_size_in_kb":2000000000"#))
        #expect(record.limits(stageDefaults).maximumChannelsPerClient == 10_000)
        #expect(record.limits(stageDefaults).maximumPayloadBytes == 64_000_500)
    }

    @Test(arguments: [
        (#"{"jwt_secret":"SECRET","extensions":[EXT]}"#, #"{"external_id":["can't be blank"]}"#),
        (#"{"external_id":"","jwt_secret":"SECRET","extensions":[EXT]}"#, #"{"external_id":["can't be blank"]}"#),
        (#"{"external_id":7,"jwt_secret":"SECRET","extensions":[EXT]}"#, #"{"external_id":["is invalid"]}"#),
        (
            #"{"external_id":"a","extensions":[EXT]}"#,
            #"{"jwt_secret":["either jwt_secret or jwt_jwks must be provided"]}"#
        ),
        (#"{"external_id":"a","jwt_secret":"SECRET"}"#, #"{"extensions":["can't be blank"]}"#),
        (#"{"external_id":"a","jwt_secret":"SECRET","extensions":{}}"#, #"{"extensions":["is invalid"]}"#),
        (
            #"{"external_id":"a","jwt_secret":"SECRET","extensions":[{}]}"#,
            #"{"extensions":[{"type":["can't be blank"]}]}"#
        ),
        (
            #"{"external_id":"a","jwt_secret":"SECRET","extensions":[{"type":"other","settings":{}}]}"#,
            #"{"extensions":[{"type":["is invalid"]}]}"#
        ),
        (
            #"{"external_id":"a","jwt_secret":"SECRET","extensions":[{"type":"postgres"}]}"#,
            #"{"extensions":[{"settings":["can't be blank"]}]}"#
        ),
        (
            #"{"external_id":"a","jwt_secret":5,"suspend":"maybe","max_joins_per_second":-1,"broadcast_adapter":"x","#
                + #""feature_flags":[],"extensions":[EXT]}"#,
            #"{"jwt_secret":["must have 32 bytes or more"],"max_joins_per_second":["is invalid"],"suspend":["is invalid"],"#
                + #""broadcast_adapter":["is invalid"],"feature_flags":["is invalid"]}"#
        ),
        (
            #"{"external_id":"a","jwt_jwks":{"keys":7},"extensions":[EXT]}"#, #"{"jwt_jwks":["is invalid"]}"#
        ),
    ])
    func `says what is wrong as the reference does`(tenant: String, errors: String) throws {
        let tenant = tenant.replacing("EXT", with: extensionText()).replacing("SECRET", with: stageSecret)
        #expect(try mistakes(tenant) == #"{"errors":\#(errors)}"#)
    }

    @Test(arguments: [
        (#""db_host":"h","db_port":"1","db_name":"d","db_user":"u","db_password":"p""#, ["region can't be blank"]),
        (#""region":"r","db_port":"1","db_name":"d","db_user":"u","db_password":"p""#, ["db_host can't be blank"]),
        (
            #""region":"r","db_host":"h","db_port":5432,"db_name":"d","db_user":"u","db_password":"p""#,
            ["db_port is invalid"]
        ),
        (
            #""region":"r","db_host":"h","db_port":"x","db_name":"d","db_user":"u","db_password":"p""#,
            ["db_port is invalid"]
        ),
        (
            #""region":"r","db_host":"h","db_port":"1","db_name":"d","db_user":"u","db_password":"p","#
                + #""slot_name":"No","poll_interval_ms":"often""#,
            ["poll_interval_ms is invalid", "slot_name is invalid"]
        ),
        (
            "",
            [
                "db_password can't be blank", "db_port can't be blank", "db_user can't be blank",
                "db_name can't be blank", "db_host can't be blank", "region can't be blank",
            ]
        ),
        (#""database_url":"mysql://h""#, ["database_url \(ProjectField.databaseURL.mistake)"]),
    ])
    func `says what is wrong with a database's settings`(settings: String, messages: [String]) throws {
        let list = messages.map { "\"\($0)\"" }.joined(separator: ",")
        #expect(
            try mistakes(
                #"{"external_id":"a","jwt_secret":"\#(stageSecret)","extensions":[\#(extensionText(settings))]}"#)
                == #"{"errors":{"extensions":[{"settings":[\#(list)]}]}}"#)
    }

    @Test func `takes a key set for a secret, and a URL for the parts of the database's address`() throws {
        let settings = #""database_url":"postgres://u:p@h/d?sslmode=verify-full","slot_name":"mine""#
        let record = try recorded(
            #"{"external_id":"a","jwt_jwks":{"keys":[]},"extensions":[\#(extensionText(settings, type: "postgres"))]}"#)
        #expect(record.database?.revealed == "postgres://u:p@h/d?sslmode=verify-full")
        #expect(record.slot == "mine" && record.jwtSecret == nil)
        #expect(record.keySet?.revealed == #"{"keys":[]}"#)
        #expect(record.extensions.map(\.type) == ["postgres_cdc_rls"])
    }

    @Test func `puts given extensions in the place of the old ones, whole`() throws {
        let old = try recorded(tenantText())
        #expect(try mistakes(#"{"external_id":"app","extensions":[]}"#, replacing: old) != nil)
        #expect(
            try mistakes(#"{"external_id":"app","extensions":[\#(extensionText(#""db_host":"h""#))]}"#, replacing: old)?
                .contains("db_password can't be blank") == true)
    }

    @Test func `checks tokens with the project's own secret`() throws {
        let (verifier, notes) = try recorded(tenantText()).verifier(.none)
        let good = Array(token(#"{"role":"anon","exp":1900000000}"#, secret: "s3cret-of-thirty-two-bytes-or-more").utf8)
        let other = Array(token(#"{"role":"anon","exp":1900000000}"#, secret: "other").utf8)
        #expect(notes.isEmpty)
        #expect((try? verifier.authenticate(good.span.bytes, at: stageTime)) != nil)
        #expect((try? verifier.authenticate(other.span.bytes, at: stageTime)) == nil)
    }

    @Test func `says what a change has to bring about`() throws {
        let old = try recorded(tenantText())
        func effects(_ change: String) throws -> ProjectEffects {
            try recorded(change, replacing: old, named: "app").effects(replacing: old, stageDefaults)
        }
        #expect(
            try effects("{}")
                == ProjectEffects(disconnectsClients: false, restartsDatabase: false, changesLimits: false))
        #expect(
            try effects(#"{"max_joins_per_second":1}"#)
                == ProjectEffects(disconnectsClients: false, restartsDatabase: false, changesLimits: true))
        #expect(
            try effects(#"{"jwt_secret":"another-s3cret-of-thirty-two-bytes"}"#)
                == ProjectEffects(disconnectsClients: true, restartsDatabase: true, changesLimits: false))
        #expect(
            try effects(#"{"private_only":true}"#)
                == ProjectEffects(disconnectsClients: true, restartsDatabase: false, changesLimits: true))
        let other = extensionText(databaseSettings.replacing("6543", with: "6544"))
        #expect(
            try effects(#"{"extensions":[\#(other)]}"#)
                == ProjectEffects(disconnectsClients: false, restartsDatabase: true, changesLimits: false))
        let same = try effects(#"{"extensions":[\#(extensionText())]}"#)
        #expect(!same.restartsDatabase)
    }

    @Test func `never prints a secret`() throws {
        let record = try recorded(tenantText())
        var printed = "\(record) \(try described(tenantText()))"
        dump(record, to: &printed)
        dump(try described(tenantText()), to: &printed)
        dump(TenantsOperation.upsert(try described(tenantText())), to: &printed)
        #expect(!printed.contains("hunter2") && !printed.contains("s3cret-of-thirty-two-bytes-or-more"))
    }
}
