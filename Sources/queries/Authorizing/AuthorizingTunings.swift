import Diagnostics

/// Internal limits of time and memory for the `Authorizing` room. They are no part of a promise. The limits that users
/// rely on are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Duration without use after which a connection for questions about private channels is closed.
    static let channelIdleLimit = Duration.seconds(60)

    /// Maximum duration of connecting to the database. It counts against the time that a question may wait.
    static let channelConnectTimeout = Duration.seconds(3)
    /// Maximum duration of waiting for PostgreSQL's answer to a question about a private channel. It counts against the
    /// time that a question may wait.
    static let channelAnswerTimeout = Duration.seconds(3)

    /// Duration for which all questions fail after the hub could not connect.
    static let channelRetryInterval = Duration.seconds(1)

    /// Maximum number of questions that a thread takes from the queue together.
    static let channelTurn = 512
    /// Maximum number of questions about private channels in one transaction.
    static let channelBatch = 256
    /// Duration after which a transaction begins no further question.
    static let channelBatchBudget = Duration.milliseconds(100)

    /// Maximum duration of the last question of a transaction, added to the transaction's budget. A question that takes
    /// longer is asked again alone.
    static let channelQuickTimeout = Duration.milliseconds(250)
    /// Budget of a transaction (see `channelBatchBudget`) while some questions have recently been slow.
    static let channelHurriedBudget = Duration.milliseconds(15)
    /// Maximum duration of the last question while some questions have recently been slow.
    static let channelHurriedTimeout = Duration.milliseconds(50)
    /// Duration of a penalty after a slow question. During it the question's topic is asked about alone, and the
    /// hurried limits may apply to the others.
    static let channelPenalty = Duration.seconds(10)
    /// Number of slow questions of one kind, within the duration of a penalty, from which all questions of that kind
    /// are asked separately from others.
    static let channelSuspicion = 3
    /// Timeout of a question about a private channel that is asked alone.
    static let channelProbeTimeout = Duration.seconds(2)

    /// Duration for which PostgreSQL's plans are reused. Plans do not notice every change of privileges.
    static let channelPlanLife = Duration.milliseconds(250)

    static func checkAuthorizing() {
        precondition(
            channelBatch <= channelTurn && channelTurn <= maximumWaitingChannelQuestions,
            "questions asked together must fit what is taken at once, and that the queue")
        precondition(
            channelProbeTimeout < channelAnswerTimeout && channelConnectTimeout < channelPatience
                && channelHurriedTimeout <= channelQuickTimeout && channelQuickTimeout < channelProbeTimeout,
            "a server that stops a probe must have the time to say so, and a client to hear of it")
        precondition(
            channelPatience + max(channelProbeTimeout, channelBatchBudget + channelQuickTimeout) < .seconds(10),
            "a client waits 10 seconds for the answer to a join")
    }
}
