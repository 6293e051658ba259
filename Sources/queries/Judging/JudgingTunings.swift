import Diagnostics

/// Internal limits of time and memory for the `Judging` room. They are no part of a promise. The maxima that users rely
/// on are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Timeout of one question about a row and a filter. After a timeout the hub does not ask that question again for
    /// `questionPenalty`, so that a costly pattern does not delay other questions.
    static let questionTimeout = Duration.milliseconds(250)
    static let questionPenalty = Duration.seconds(10)

    /// Maximum number of pairs of a row and a policy subject in one batch of the policy queue.
    static let policyBatchPairs = 256 << 10
    static let policyBatchJobs = 16_384
    /// Duration after which the hub gives up the unanswered rest of a batch of questions about policies.
    static let policyBatchPatience = Duration.seconds(15)

    /// Maximum duration for which a question about a committed row waits while the database is unreachable. During the
    /// wait its subscribers get no new changes, but need not be told that changes are missing. A restarting server is
    /// usually back within this time.
    static let outagePatience = Duration.seconds(15)

    /// Maximum number of rows in one statement that evaluates a policy or computes a generated column.
    public static let policyStatementRows = 256
    /// Target duration of a statement that evaluates a policy. The hub adapts the number of claims in a statement to
    /// it.
    static let policyStatementTarget = Duration.milliseconds(100)
    /// Timeout of one statement that evaluates a policy. If a policy exceeds it even for a few rows, the hub does not
    /// ask it for `policyPenalty`.
    public static let policyTimeout = Duration.seconds(1)
    static let policyPenalty = Duration.seconds(10)
    /// Age of a session from which the hub distrusts certain errors in it. The hub then replaces the session and asks
    /// again.
    static let policySessionProof = Duration.seconds(1)

    /// Maximum duration for which a question waits until PostgreSQL's snapshot includes the transaction that it
    /// requires.
    static let visibilityPatience = Duration.seconds(5)

    /// Number of rows whose generated column is computed separately after all rows of a statement failed together. If
    /// these fail too, the hub gives up the other rows.
    static let generationRowsTried = 8
    /// Maximum number of roles in which the hub tries to compute a generated column.
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
