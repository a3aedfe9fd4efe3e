import type { components, paths } from './schema'

type Schemas = components['schemas']
type Answer<P extends keyof paths> = paths[P] extends {
  get: { responses: { 200: { content: { 'application/json': infer A } } } }
}
  ? A
  : never

// Only keys of another dialect get that dialect's statuses.
type OwnStatus<T> = Omit<T, 'status'> & { status: JobStatus }

export type JobStatus = Schemas['JobState']
export type Job = OwnStatus<Schemas['Job']>
export type Model = Schemas['Model']
export type Fn = Schemas['Function']
export type Run = paths['/v1/functions/{function}/run']['post']['responses'][200]['content']['application/json']
export type Node = Schemas['Node']
export type Engine = Schemas['Engine']
export type Engines = Answer<'/v1/engines'>
export type Server = Schemas['Server']
export type ServerLog = Schemas['ServerLog']
export type Actor = Schemas['Actor']
export type Answered = Schemas['Answered']
export type Diagnosis = Schemas['Diagnosis']
export type Key = Schemas['Key']
export type Role = Key['role']
export type AuditEntry = Schemas['AuditEntry']
export type StoredFile = Schemas['File']
export type Upload = Schemas['Upload']
export type UploadPart = Schemas['UploadPart']
export type Batch = Schemas['Batch']
export type Submitted = Schemas['Submitted']
export type SubmittedSet = { metadata: { job_ids: string[]; message: string } }

export type Me = Answer<'/v1/me'>
export type JobPage = { jobs: Job[]; next_cursor: string | null; scanned_all: boolean }
export type Counts = Answer<'/v1/jobs/counts'>
export type Cancelled = paths['/v1/jobs/cancel']['post']['responses'][200]['content']['application/json']
export type Progress = OwnStatus<Answer<'/v1/jobs/{job_id}/progress'>>
export type ErrorCounts = Answer<'/v1/jobs/{job_id}/errors/counts'>
export type Timeline = Answer<'/v1/jobs/{job_id}/timeline'>
export type Preview = OwnStatus<Answer<'/v1/jobs/{job_id}/preview'>>
export type PreviewRow = Preview['rows'][number]
export type PropertyCounts = Answer<'/v1/jobs/{job_id}/preview/counts'>
export type ComparedJob = OwnStatus<Schemas['ComparedJob']>
export type ComparedRows = Answer<'/v1/jobs/compare'>
export type ComparedRow = ComparedRows['rows'][number]
export type ComparisonSummary = Omit<Answer<'/v1/jobs/compare/summary'>, 'jobs'> & { jobs: ComparedJob[] }
export type Row = Answer<'/v1/jobs/{job_id}/rows/{row}'>
export type RowError = Answer<'/v1/jobs/{job_id}/errors'>['errors'][number]
export type NodeGPUs = Answer<'/v1/gpus'>['nodes'][number]
export type Stats = Answer<'/v1/stats'>
export type Usage = Answer<'/v1/usage'>
export type UsageLine = Usage['usage'][number]
export type Quota = Schemas['QuotasInForce'][number]
export type Quotas = components['responses']['Quotas']['content']['application/json']
export type Accounts = Answer<'/v1/accounts'>
export type Settings = components['responses']['Settings']['content']['application/json']
export type RetentionPreview = Answer<'/v1/settings/preview'>
export type RetentionEffect = RetentionPreview['presets'][number]
export type Webhook = Schemas['Webhook']
export type Delivery = Schemas['Delivery']
export type DeliveryAttempt = Schemas['DeliveryAttempt']
