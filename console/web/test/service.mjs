// The pages of operators.
import { at, check, logIn, step } from './drive.mjs'

export async function service() {
  await step('the tile of a GPU says what its node does, and why the GPU is idle', async (page) => {
    const gpu = (index, utilization) => ({
      index, name: 'NVIDIA H100', uuid: `GPU-${index}`, memory_total_bytes: 80 * 2 ** 30, memory_used_bytes: 60 * 2 ** 30, utilization, power_watts: 300, temperature_celsius: 60,
    })
    let gpus = []
    await page.route('**/v1/gpus', (route) => route.fulfill({ json: { nodes: gpus } }))
    await page.route('**/v1/engines', async (route) => {
      const answer = await (await route.fetch()).json()
      const [first] = answer.engines
      gpus = [{ node: first.node, problem: null, gpus: [gpu(0, 0.9), gpu(1, 0)] }, { node: 'node-9', problem: null, gpus: [gpu(2, 0)] }]
      const down = { ...first, node: 'node-9', name: 'vllm', state: 'down', last_error: 'connection refused' }
      await route.fulfill({ json: { ...answer, engines: [{ ...first, in_flight: 0 }, down] } })
    })
    await page.goto(at('engines'))
    await logIn(page)
    const tiles = page.getByRole('list', { name: 'GPUs' }).getByRole('listitem')
    await tiles.filter({ hasText: 'GPU 0' }).getByText('90 %').waitFor()
    await tiles.filter({ hasText: 'GPU 1' }).getByText('no rows wait for its engine.').waitFor()
    await tiles.filter({ hasText: 'GPU 2' }).getByText('vllm is down. connection refused').waitFor()
    if (await tiles.filter({ hasText: 'GPU 0' }).getByText('Idle:').count()) throw new Error('a busy GPU is idle')
    await check(page, 'GPUs')
    await page.unrouteAll({ behavior: 'wait' })
  })
}
