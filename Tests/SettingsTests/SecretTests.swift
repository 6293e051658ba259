import TestSupport
import Testing

@testable import Settings

private let password = "hunter2"

@Suite(.within(minutes: 5)) struct SecretTests {
    @Test(arguments: [
        ("postgres://u:hunter2@h:5432/d", "postgres://u:********@h:5432/d"),
        ("postgresql://u:hunter2@/d", "postgresql://u:********@/d"),
        ("postgres://:hunter2@h", "postgres://:********@h"),
        ("postgres://u@h/d?password=hunter2&sslmode=require", "postgres://u@h/d?password=********&sslmode=require"),
        ("postgres://h/d?p%61ssword=hunter2", "postgres://h/d?p%61ssword=********"),
        ("postgres://h/d?sslpassword=hunter2&sslkey=/k", "postgres://h/d?sslpassword=********&sslkey=/k"),
        ("postgres://u:hunter2?x@h/d", "postgres://u:********@h/d"),
        ("postgres://[::1]:5432,h2:5433/d", "postgres://[::1]:5432,h2:5433/d"),
        ("postgres://%2Fvar%2Frun/d", "postgres://%2Fvar%2Frun/d"),
        ("host=h password=hunter2 user=u", "host=h password=******** user=u"),
        ("host = h password = 'hunter2 \\' x'", "host=h password=********"),
        (#"password=hunter2\ x dbname='my db'"#, "password=******** dbname='my db'"),
        ("sslpassword='hunter2' oauth_client_secret=hunter2", "sslpassword=******** oauth_client_secret=********"),
    ])
    func `shows a connection without its secrets`(text: String, shown: String) throws {
        let connection = try #require(ConnectionString(text))
        #expect(connection.redacted == shown)
        #expect(connection.revealed == text)
        var dumped = "\(connection) \(String(reflecting: connection))"
        dump(connection, to: &dumped)
        #expect(!dumped.contains(password))
    }

    @Test(arguments: [
        "", "mysql://u:hunter2@h/d", "hunter2", "postgres://u:hunter2@x@h/d", "postgres://u:hun/ter2@h/d",
        "postgres://u:12/hunter2@h/d", "postgres://u:hunter2@h:port/d", "postgres://u:hunter2@h:0/d",
        "postgres://u:hunter2%@h/d", "postgres://u:hunter2%zz@h/d", "postgres://h/d?hunter2", "password='hunter2",
        "password", "=hunter2", "host=h hunter2", "PASSWORD=hunter2", "postgres://u:hunter2@h h/d",
    ])
    func `refuses a connection it cannot take apart, without repeating it`(text: String) {
        #expect(ConnectionString(text) == nil)
        let found = complaints(overrides: [.flag(Setting(\.databaseURL), text)])
        #expect(found.count == 1)
        #expect(found.first?.hasPrefix("--database-url: database_url: expected a connection URL such as") == true)
        #expect(!found.joined().contains(password))
    }

    @Test func `never prints the secret of the tokens`() throws {
        let configuration = try Configuration.load(
            overrides: [
                .flag(Setting(\.jwtSecret), password), .flag(Setting(\.databaseURL), "postgres://u:\(password)@h/d"),
            ],
            surroundings: surroundings())
        var printed = "\(configuration)"
        dump(configuration, to: &printed)
        printed += String(reflecting: configuration) + configuration.effective.map(\.shown).joined()
        #expect(!printed.contains(password))
        #expect(configuration.jwtSecret?.revealed == password)
        #expect(configuration.effective.first { $0.setting == Setting(\.jwtSecret) }?.shown == "********")
    }

    @Test(arguments: [
        "jwt_secret = 'hunter2", "jwt_secret = hunter2@x", "postgres://u:hunter2@h", "jwt_secret = a hunter2",
    ])
    func `does not repeat a line that it cannot read`(line: String) {
        let found = complaints(files: ["./tidewire.conf": line])
        #expect(!found.isEmpty)
        #expect(!found.joined().contains(password))
    }

    @Test func `does not repeat the value of an unknown variable`() {
        let found = complaints(environment: ["TIDEWIRE_JWT_SECRT": password])
        #expect(
            found == ["environment TIDEWIRE_JWT_SECRT: there is no such setting; did you mean TIDEWIRE_JWT_SECRET?"])
    }
}
