import Protocol
import TestSupport
import Testing

@testable import Authorizing

/// Tests of the texts that clients receive. Other programs search for these words.
@Suite(.within(minutes: 10)) struct ChannelTextTests {
    private static let canceled = ChannelAuthorizationError.canceled("canceling statement due to statement timeout")

    @Test(arguments: [
        (
            ChannelAuthorizationError.policy(sqlState: "P0001"),
            "Unauthorized: You do not have permissions to read from this Channel topic: room:1", 422,
            "RLS policy error",
            "You do not have permissions to read from this Channel topic: room:1"
        ),
        (
            .role, "Unauthorized: You do not have permissions to read from this Channel topic: room:1", 403,
            "Unauthorized", "You do not have permissions to read from this Channel topic: room:1"
        ),
        (
            canceled, "QueryCanceled: canceling statement due to statement timeout", 422, "Query canceled",
            "Query was cancelled, please try again"
        ),
        (
            .missingPartition, "MissingPartition: Realtime was unable to find the expected messages partition", 422,
            "Missing messages partition", "Realtime was unable to find the expected messages partition"
        ),
        (
            .unprepared, "Realtime was unable to connect to the project database", 422, "Tenant database unavailable",
            "Realtime was unable to connect to the project database"
        ),
        (
            .unavailable, "UnableToConnectToProject: Realtime was unable to connect to the project database", 422,
            "Tenant database unavailable", "Realtime was unable to connect to the project database"
        ),
        (
            .initializing, "InitializingProjectConnection: Realtime is initializing the project connection", 422,
            "Tenant database initializing", "Realtime is initializing the project connection"
        ),
        (
            .tooManyConnections,
            "DatabaseLackOfConnections: Database can't accept more connections, Realtime won't connect", 422,
            "Tenant database has too many connections",
            "Database can't accept more connections, Realtime won't connect"
        ),
        (
            .exhausted, "IncreaseConnectionPool: Please increase your connection pool size", 429,
            "Connection pool exhausted", "Please increase your connection pool size"
        ),
    ])
    func `each failure has its words`(
        failure: ChannelAuthorizationError, reason: String, status: Int, message: String, system: String
    ) {
        #expect(failure.joinReason(topic: "room:1") == reason)
        let answer = failure.restAnswer
        #expect(answer.status == status)
        #expect(answer.message == message)
        #expect(failure.systemMessage(topic: "room:1").text == system)
    }
}
