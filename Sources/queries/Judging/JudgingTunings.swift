import Diagnostics

/// Internal tuning of the room's time and memory, not part of any promise. The maxima are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Timeout of the question about one row. After a timeout the hub does not ask it again for a while, so that a
    /// costly pattern does not delay others.
    static let questionTimeout = Duration.milliseconds(250)
    static let questionPenalty = Duration.seconds(10)

    /// Maximum number of row-claimant pairs that are taken from the queue of policies together.
    static let policyBatchPairs = 256 << 10
    static let policyBatchJobs = 16_384
    /// Time after which the unanswered rest of a batch is given up.
    static let policyBatchPatience = Duration.seconds(15)

    /// Time for which questions about committed rows wait while the database is away. Their subscribers lag meanwhile,
    /// but need not be told that changes are missing. A server that restarts is usually back by then.
    static let outagePatience = Duration.seconds(15)

    /// Maximum number of rows in one statement.
    public static let policyStatementRows = 256
    /// Target duration of a statement; the hub adapts the statements' size to it.
    static let policyStatementTarget = Duration.milliseconds(100)
    /// Timeout of one statement. After a policy takes longer even for a few rows, the hub does not ask it for a while.
    public static let policyTimeout = Duration.seconds(1)
    static let policyPenalty = Duration.seconds(10)
    /// Age from which a session must be replaced before a failure in it counts.
    static let policySessionProof = Duration.seconds(1)

    /// Maximum wait until a snapshot includes the transaction of the rows or memberships.
    static let visibilityPatience = Duration.seconds(5)

    /// Number of rows tried separately after they failed together. If all of these fail, the rest is given up.
    static let generationRowsTried = 8
    /// Maximum number of subscribers' roles in which an expression is tried.
    static let maximumGenerationRoles = 4

    static func checkJudging() {
        precondition(
            policyBatchPairs <= maximumWaitingPairs && policyBatchJobs <= maximumWaitingPolicyJobs,
            "what is asked together must fit the queue")
        precondition(
            questionTimeout < answerTimeout && policyTimeout < answerTimeout,
            "a server that stops a statement itself must have the time to say so")
        precondition(
            policyStatementTarget < policyTimeout && policyTimeout < policyBatchPatience,
            "a statement must have ended before all is given up")
    }
}
