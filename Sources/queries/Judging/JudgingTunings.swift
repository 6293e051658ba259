import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// What one row's filter may take. One that takes longer is not asked about again for a while, so that a costly pattern
    /// does not keep the others waiting.
    static let questionTimeout = Duration.milliseconds(250)
    static let questionPenalty = Duration.seconds(10)

    /// What is taken from the queue of policies and asked together, in pairs of a row and a claimant.
    static let policyBatchPairs = 256 << 10
    static let policyBatchJobs = 16_384
    /// It is given up after this long, as far as it is not answered.
    static let policyBatchPatience = Duration.seconds(15)

    /// What is asked about committed rows waits so long for a database that is away: who hears of them is behind meanwhile,
    /// where otherwise it would have to be told that they are missing. Servers that are restarted are there again by then.
    static let outagePatience = Duration.seconds(15)

    /// Rows in one statement.
    public static let policyStatementRows = 256
    /// Statements are made so long that they take about this.
    static let policyStatementTarget = Duration.milliseconds(100)
    /// What one statement may take. A policy that takes longer even for a few rows is not asked again for a while.
    public static let policyTimeout = Duration.seconds(1)
    static let policyPenalty = Duration.seconds(10)

    /// Row texts and claims are of no use before the snapshot sees the transaction they come from: waiting for that.
    static let visibilityPatience = Duration.seconds(5)

    /// Rows tried one by one, where together they failed, before the others are given up with them.
    static let generationRowsTried = 8
    /// Roles of subscribers as which an expression is tried.
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
